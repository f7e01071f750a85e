#pragma once
#include <cstdint>
#include <utility>

namespace ivme {

// Where a loop is among its random numbers, on devices that compute at once: what a recording counts on xla
// (xla/trace/storage.h), at the same points of the loop.
struct RandomPlace {
  uint64_t step = 0;                              // that have ended since the seed was set
  int64_t position = 0;                           // random operations in this step
  bool drawn = false;                             // the step's seed is known
  std::pair<uint64_t, uint64_t> seeded = {0, 0};  // the seed, and how often one had been set

  bool ended = true;  // nothing has begun since the last step

  void begin_step() { ended = false; }
  void end_step() {
    ++step;
    position = 0;
    drawn = false;
    ended = true;
  }
};

}  // namespace ivme
