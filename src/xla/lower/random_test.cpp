#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ivme/error.h"
#include "xla/lower/run_graph.h"

namespace ivme::xla {
namespace {

Value seed(int64_t number, int64_t step) {
  return make_tensor(Dtype::i64, {2}, {static_cast<double>(number), static_cast<double>(step)});
}
Value uniform(int64_t number, int64_t step, Dims dims, Dtype dtype, int64_t position) {
  return apply("ivme::random_uniform", {seed(number, step)},
               {operand(0), list(std::move(dims)), of_dtype(dtype), whole(position)});
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double moment(const std::vector<double>& values, int power) {
  double sum = 0;
  for (double value : values) sum += std::pow(value, power);
  return sum / static_cast<double>(values.size());
}

// Threefry-2x32-20 from its definition, on the host.
std::array<uint32_t, 2> threefry(std::array<uint32_t, 2> key, std::array<uint32_t, 2> x) {
  constexpr uint32_t rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t keys[3] = {key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1]};
  x = {x[0] + keys[0], x[1] + keys[1]};
  for (uint32_t round = 0; round < 20; ++round) {
    const uint32_t r = rotations[round % 8];
    x[0] += x[1];
    x[1] = ((x[1] << r) | (x[1] >> (32 - r))) ^ x[0];
    if (round % 4 != 3) continue;
    const uint32_t group = round / 4 + 1;
    x = {x[0] + keys[group % 3], x[1] + keys[(group + 1) % 3] + group};
  }
  return x;
}

TEST(Random, numbers_are_those_of_threefry) {
  ASSERT_EQ(threefry({0, 0}, {0, 0}),
            (std::array<uint32_t, 2>{0x6b200159, 0x99ba4efe}));  // Random123's own answer
  const auto stream = threefry({42, 0}, {7, 3});
  const auto values = run(uniform(42, 7, {2, 3}, Dtype::f32, 3));
  for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], (threefry(stream, {i, 0})[0] >> 8) * 0x1p-24);
}

TEST(Random, seed_step_and_position_make_other_numbers) {
  const auto first = run(uniform(1, 1, {64}, Dtype::f32, 0));
  EXPECT_EQ(run(uniform(1, 1, {8, 8}, Dtype::f32, 0)), first);
  EXPECT_NE(run(uniform(2, 1, {64}, Dtype::f32, 0)), first);
  EXPECT_NE(run(uniform(1, 2, {64}, Dtype::f32, 0)), first);
  EXPECT_NE(run(uniform(1, 1, {64}, Dtype::f32, 1)), first);
}

TEST(Random, uniform_numbers_fill_the_interval_and_never_reach_1) {
  for (Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const auto values = run(uniform(3, 0, {40000}, dtype, 0));
    EXPECT_NEAR(mean(values), 0.5, 0.01) << name_of(dtype);
    EXPECT_NEAR(moment(values, 2), 1.0 / 3, 0.01) << name_of(dtype);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 1) << name_of(dtype);
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0) << name_of(dtype);
  }
}

TEST(Random, normal_numbers_have_the_moments_of_the_normal_distribution) {
  const auto values = run(apply("ivme::random_normal", {seed(5, 0)},
                                {operand(0), list({40000}), of_dtype(Dtype::f32), whole(0)}));
  EXPECT_NEAR(mean(values), 0, 0.03);
  EXPECT_NEAR(moment(values, 2), 1, 0.05);
  EXPECT_NEAR(moment(values, 3), 0, 0.1);
  EXPECT_NEAR(moment(values, 4), 3, 0.2);
}

TEST(Random, bernoulli_is_1_with_its_probability) {
  const Value probability{make_number(Dtype::f32, 0.9)};
  const auto values =
      run(apply("ivme::random_bernoulli", {seed(5, 0), probability},
                {operand(0), operand(1, true), list({40000}), of_dtype(Dtype::f32), whole(0)}));
  EXPECT_NEAR(mean(values), 0.9, 0.01);
  EXPECT_EQ(moment(values, 2), mean(values));
}

TEST(Random, a_seed_is_two_whole_numbers) {
  EXPECT_THROW(apply("ivme::random_uniform", {make_tensor(Dtype::f32, {2}, {1, 2})},
                     {operand(0), list({2}), of_dtype(Dtype::f32), whole(0)}),
               Error);
}

}  // namespace
}  // namespace ivme::xla
