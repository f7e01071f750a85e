#pragma once
#include <cstdint>
#include <string>

namespace ivme {

// A place in the user's program from which something was called. Taking it costs the walk up the stack, about
// 0.2 µs a frame; it becomes text only when a message needs it. Call sites are kept for the life of the
// process, each once. For any thread.
class CallSite {
 public:
  CallSite() = default;  // of nothing
  // Of the calling thread, now.
  static CallSite here();
  // `awaited_by`: the other thread's call that waits for this one: where nothing of the user's is on this
  // stack, it is there.
  static CallSite here(const CallSite& awaited_by);
  // The same place, meaning the backward pass of what was called there.
  CallSite backward() const;

  explicit operator bool() const { return index_ != 0; }
  bool operator==(const CallSite&) const = default;

  // "train.cpp:87", or "train.cpp:87 (backward)": the innermost call that is in neither libtorch, ivme nor
  // the standard library. Without debug information the function, "main+0x1f3 (train)"; "" where that is
  // unknown.
  std::string text() const;
  std::string where() const;  // the text as a part of a sentence: " at train.cpp:87", or ""

 private:
  uint32_t index_ = 0;
  bool backward_ = false;
};

}  // namespace ivme
