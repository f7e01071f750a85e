#include "support/threefry.h"

#include <bit>

namespace ivme {
namespace {

using Words = std::array<uint32_t, 2>;

inline Words rounds(const Words& key, Words x) {
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const std::array<uint32_t, 3> keys = {key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1]};
  x[0] += keys[0];
  x[1] += keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : rotations[group % 2]) {
      x[0] += x[1];
      x[1] = std::rotl(x[1], rotation) ^ x[0];
    }
    x[0] += keys[(group + 1) % 3];
    x[1] += keys[(group + 2) % 3] + group + 1;
  }
  return x;
}

inline Words at(const Words& stream, uint64_t index) {
  return rounds(stream, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)});
}

}  // namespace

Words threefry(const Words& key, Words counter) { return rounds(key, counter); }

void bernoulli(const Words& stream, uint64_t first, int64_t count, float probability, float* numbers) {
  for (int64_t i = 0; i < count; ++i) {
    const Words words = at(stream, first + static_cast<uint64_t>(i));
    numbers[i] = static_cast<float>(words[0] >> 8) * 0x1p-24f < probability ? 1 : 0;
  }
}

void bernoulli(const Words& stream, uint64_t first, int64_t count, double probability, double* numbers) {
  for (int64_t i = 0; i < count; ++i) {
    const Words words = at(stream, first + static_cast<uint64_t>(i));
    const double uniform = (static_cast<double>(words[0] >> 5) * 0x1p26 + (words[1] >> 6)) * 0x1p-53;
    numbers[i] = uniform < probability ? 1 : 0;
  }
}

}  // namespace ivme
