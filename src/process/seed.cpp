#include "ivme/seed.h"

#include <ATen/Context.h>

#include <atomic>
#include <cstdlib>

#include "ivme/error.h"
#include "process/environment.h"
#include "process/seed_rank.h"

namespace ivme {
namespace {

int& accelerators_rank() {
  static int rank = -1;
  return rank;
}

std::atomic<uint64_t>& seedings() {
  static std::atomic<uint64_t> times{0};
  return times;
}

}  // namespace

uint64_t times_seeded() { return seedings(); }

void set_rank_for_seeds(int rank) { accelerators_rank() = rank; }

std::optional<uint64_t>& last_seed() {
  static std::optional<uint64_t> seed;
  return seed;
}

std::mt19937_64& random_engine() {
  static std::mt19937_64 engine;
  return engine;
}

void set_seed(uint64_t seed, const SeedOptions& options) {
  last_seed() = seed;
  ++seedings();
  if (options.device_specific) {
    if (accelerators_rank() < 0)
      throw Error(
          "set_seed was asked for a device-specific seed, but there is no Accelerator yet to say which rank "
          "this is. "
          "Create the Accelerator first.");
    seed += static_cast<uint64_t>(accelerators_rank());
  }
  std::srand(static_cast<unsigned>(seed));
  random_engine().seed(seed);
  at::manual_seed(seed);  // CPU and every CUDA device
  if (options.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
}

}  // namespace ivme
