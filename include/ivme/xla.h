#pragma once
#include <cstdint>

// Seeing inside the XLA path (docs/tpu.md).
namespace ivme::xla {

// Of this process, since it began.
struct Metrics {
  int64_t compiles = 0;    // programs that XLA compiled
  int64_t cache_hits = 0;  // programs read from the cache on disk instead
  int64_t programs = 0;    // different programs: compiles + cache_hits
  int64_t executions = 0;  // programs run
  int64_t replays = 0;     // of these, by steps that were not recorded anew (ivme/compiled_step.h)
  int64_t fallbacks = 0;   // operators computed on the CPU, which IVME_XLA_CPU_FALLBACK=1 allows
  int64_t kept_bytes = 0;  // of state that an update could not overwrite, since somebody held the old value
  int64_t live_buffers = 0, live_bytes = 0;  // on the device, now
};
Metrics metrics();

}  // namespace ivme::xla
