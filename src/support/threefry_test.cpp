#include "support/threefry.h"

#include <gtest/gtest.h>

#include <vector>

namespace ivme {
namespace {

using Words = std::array<uint32_t, 2>;

// Random123's own known answers.
TEST(Threefry, words_are_those_of_its_authors) {
  EXPECT_EQ(threefry({0, 0}, {0, 0}), (Words{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}), (Words{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry({0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}), (Words{0xc4923a9c, 0x483df7a0}));
}

TEST(Threefry, a_part_of_the_numbers_is_that_part_of_all) {
  std::vector<double> all(1000), part(100);
  bernoulli({1, 2}, 0, 1000, 0.3, all.data());
  bernoulli({1, 2}, 500, 100, 0.3, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 500));
  double ones = 0;
  for (double number : all) ones += number;
  EXPECT_NEAR(ones / 1000, 0.3, 4 * 0.0145);  // 4 standard deviations: sqrt(0.3 · 0.7 / 1000)
}

}  // namespace
}  // namespace ivme
