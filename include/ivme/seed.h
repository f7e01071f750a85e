#pragma once
#include <cstdint>
#include <random>

namespace ivme {

struct SeedOptions {
  // Adds the process index, so that each rank draws other numbers. Needs an Accelerator (throws Error
  // without).
  bool device_specific = false;
  // Also at::globalContext().setDeterministicAlgorithms(true).
  bool deterministic = false;
};

// Seeds every generator a training program may draw from: C's rand(), random_engine(), torch on CPU and on
// all CUDA devices. Same seed, same weights, same order, same dropout masks, as Python Accelerate's set_seed.
void set_seed(uint64_t seed, const SeedOptions& options = {});

// The process-wide engine for user code, where a Python program would use `random` or numpy. Not for
// concurrent use.
std::mt19937_64& random_engine();

}  // namespace ivme
