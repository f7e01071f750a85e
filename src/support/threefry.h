#pragma once
#include <array>
#include <cstdint>

namespace ivme {

// Threefry-2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011), as
// programs of XLA have it (xla/lower/random.cpp): random words that depend on a key and a counter alone.
std::array<uint32_t, 2> threefry(const std::array<uint32_t, 2>& key, std::array<uint32_t, 2> counter);

// Numbers that are 1 with this probability, else 0: those of the indices `first`, first + 1, ... of a stream.
void bernoulli(const std::array<uint32_t, 2>& stream, uint64_t first, int64_t count, float probability,
               float* numbers);
void bernoulli(const std::array<uint32_t, 2>& stream, uint64_t first, int64_t count, double probability,
               double* numbers);

}  // namespace ivme
