#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ivme {

// A place in the user's program from which something was called. Taking it costs the walk up the stack, about
// 0.2 µs a frame; it becomes text only when a message needs it. Call sites are kept for the life of the
// process, each once. For any thread.
class CallSite {
 public:
  CallSite() = default;  // of nothing
  // Of the calling thread, now.
  static CallSite here();
  // The same in a backward pass, where most often nothing of the user's is on the stack: then `forward`, what
  // is differentiated.
  static CallSite in_backward_of(const CallSite& forward);

  explicit operator bool() const { return index_ != 0; }
  bool operator==(const CallSite&) const = default;

  // "train.cpp:87", or "train.cpp:87 (backward)": the innermost call that is in neither libtorch, ivme nor
  // the standard library. Without debug information the function, "main+0x1f3 (train)"; "" where that is
  // unknown.
  std::string text() const;
  std::string where() const;  // the text as a part of a sentence: " at train.cpp:87", or ""

 private:
  static CallSite keep(std::vector<uintptr_t> frames);

  uint32_t index_ = 0;
};

}  // namespace ivme
