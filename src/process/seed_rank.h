#pragma once
#include <cstdint>
#include <optional>

namespace ivme {

// The rank that device-specific seeds add; the Accelerator sets it.
void set_rank_for_seeds(int rank);

// What set_seed was last given; the run record has it.
std::optional<uint64_t>& last_seed();

// How often set_seed was called. Any thread.
uint64_t times_seeded();

}  // namespace ivme
