#include "support/source_lines.h"

#include <backtrace.h>

namespace ivme {
namespace {

void ignore_error(void*, const char*, int) {}

backtrace_state* state() {
  static backtrace_state* one = backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  return one;
}

}  // namespace

std::vector<SourceFrame> source_frames(uintptr_t instruction) {
  std::vector<SourceFrame> frames;
  if (!state()) return frames;
  const auto add = [](void* to, uintptr_t, const char* file, int line, const char*) {
    if (file) static_cast<std::vector<SourceFrame>*>(to)->push_back({file, line});
    return 0;
  };
  backtrace_pcinfo(state(), instruction, add, ignore_error, &frames);
  return frames;
}

Symbol symbol_at(uintptr_t instruction) {
  Symbol symbol;
  if (!state()) return symbol;
  const auto keep = [](void* to, uintptr_t, const char* name, uintptr_t begin, uintptr_t) {
    if (name) *static_cast<Symbol*>(to) = {name, begin};
  };
  backtrace_syminfo(state(), instruction, keep, ignore_error, &symbol);
  return symbol;
}

}  // namespace ivme
