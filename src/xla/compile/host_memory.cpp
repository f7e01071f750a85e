#include "xla/compile/host_memory.h"

#include <malloc.h>

#include <limits>
#include <string>

#include "process/environment.h"

namespace ivme::xla {
namespace {

bool environment_decides() {
  const std::string tunables = read_environment("GLIBC_TUNABLES").value_or("");
  return read_environment("MALLOC_MMAP_THRESHOLD_") || read_environment("MALLOC_TRIM_THRESHOLD_") ||
         tunables.find("glibc.malloc.mmap_") != tunables.npos ||
         tunables.find("glibc.malloc.trim_") != tunables.npos;
}

}  // namespace

void keep_freed_memory() {
  if (environment_decides()) return;
  constexpr int most_of_older_glibc = 32 << 20;
  if (!mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max()) &&
      !mallopt(M_MMAP_THRESHOLD, most_of_older_glibc))
    return;
  mallopt(M_TRIM_THRESHOLD, -1);  // never
}

}  // namespace ivme::xla
