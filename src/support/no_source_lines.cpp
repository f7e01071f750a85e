#include <dlfcn.h>

#include "support/source_lines.h"

namespace ivme {

std::vector<SourceFrame> source_frames(uintptr_t) { return {}; }

Symbol symbol_at(uintptr_t instruction) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(instruction), &info) || !info.dli_sname) return {};
  return {info.dli_sname, reinterpret_cast<uintptr_t>(info.dli_saddr)};
}

}  // namespace ivme
