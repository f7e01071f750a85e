// Random numbers drawn on xla: how they are distributed, and what they depend on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/dropout.h>

#include <cmath>

#include "ivme/ivme.h"

namespace ivme {
namespace {

using at::Tensor;

constexpr int64_t count = 200000;

class XlaRandom : public testing::Test {
 protected:
  XlaRandom() { set_seed(1); }
  Tensor empty(at::ScalarType type = at::kFloat) const { return at::empty({count}, options(type)); }
  at::TensorOptions options(at::ScalarType type = at::kFloat) const {
    return at::TensorOptions().device(accelerator.device()).dtype(type);
  }
  Accelerator accelerator{{.device = "xla"}};
};

// The mean lies within five of its standard deviations, the variance within 2 %.
void expect_mean_and_variance(const Tensor& tensor, double mean, double variance) {
  auto values = tensor.cpu().to(at::kDouble);
  EXPECT_NEAR(values.mean().item<double>(), mean,
              5 * std::sqrt(variance / static_cast<double>(values.numel())));
  EXPECT_NEAR(values.var().item<double>(), variance, 0.02 * variance);
}

void expect_between(const Tensor& tensor, double least, double below) {
  auto values = tensor.cpu().to(at::kDouble);
  EXPECT_GE(values.min().item<double>(), least);
  EXPECT_LT(values.max().item<double>(), below);
}

double correlation(const Tensor& a, const Tensor& b) {
  return at::corrcoef(at::stack({a.cpu().to(at::kDouble), b.cpu().to(at::kDouble)}))[0][1].item<double>();
}

TEST_F(XlaRandom, uniform) {
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    auto x = empty(type).uniform_(-2, 4);
    expect_mean_and_variance(x, 1, 3);  // (4 + 2)² / 12
    expect_between(x, -2, 4);
    EXPECT_EQ(x.scalar_type(), type);
  }
}

// 16 intervals hold a sixteenth each; chi-squared with 15 degrees of freedom exceeds 45 once in 10,000.
TEST_F(XlaRandom, uniform_fills_all_of_its_range) {
  auto x = at::rand({count}, options()).cpu();
  auto counts = at::histc(x, 16, 0, 1).to(at::kDouble);
  double expected = static_cast<double>(count) / 16;
  EXPECT_LT(((counts - expected).square() / expected).sum().item<double>(), 45);
}

TEST_F(XlaRandom, normal) {
  auto x = empty().normal_(3, 2);
  expect_mean_and_variance(x, 3, 4);
  auto z = ((x - 3) / 2).cpu().to(at::kDouble);
  EXPECT_NEAR(z.pow(3).mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 0.1);
  EXPECT_NEAR(z.abs().gt(3).to(at::kDouble).mean().item<double>(), 0.0027, 0.0006);
}

TEST_F(XlaRandom, bernoulli) {
  expect_mean_and_variance(empty().bernoulli_(0.3), 0.3, 0.21);
  auto p = at::linspace(0, 1, 5).repeat({count / 5}).to(accelerator.device());
  auto draws = at::bernoulli(p).cpu().view({-1, 5});
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(draws.select(1, i).mean().item<double>(), 0.25 * i, 0.013) << i;
  EXPECT_EQ(draws.select(1, 0).sum().item<double>(), 0);
  EXPECT_EQ(draws.select(1, 4).min().item<double>(), 1);
}

TEST_F(XlaRandom, other_distributions) {
  expect_mean_and_variance(empty().exponential_(2), 0.5, 0.25);
  EXPECT_GT(empty().exponential_(2).min().item<double>(), 0);
  expect_mean_and_variance(empty().geometric_(0.25), 4, 12);  // 1/p, (1 − p)/p²
  expect_mean_and_variance(empty().log_normal_(0, 0.5).log(), 0, 0.25);
  expect_mean_and_variance(empty().cauchy_(1, 2).sub(1).div(2).atan(), 0, M_PI * M_PI / 12);  // uniform
  expect_mean_and_variance(at::normal(at::full({count}, 3.0, options()), 2), 3, 4);
  expect_mean_and_variance(at::normal(1, at::full({count}, 2.0, options())), 1, 4);
}

// Each class within five standard deviations of its share.
TEST_F(XlaRandom, multinomial) {
  auto weights = at::tensor({1.0F, 0.0F, 3.0F, 4.0F}).to(accelerator.device());
  auto drawn = at::multinomial(weights, count, /*replacement=*/true).cpu();
  auto shares = at::bincount(drawn, {}, 4).to(at::kDouble).div(static_cast<double>(count));
  const double expected[] = {0.125, 0, 0.375, 0.5};
  for (int64_t i = 0; i < 4; ++i) {
    double deviation = std::sqrt(expected[i] * (1 - expected[i]) / static_cast<double>(count));
    EXPECT_NEAR(shares[i].item<double>(), expected[i], 5 * deviation);
  }
  auto without = at::multinomial(weights.repeat({100, 1}), 3).cpu();
  EXPECT_TRUE(at::equal(std::get<0>(without.sort(1)), at::tensor({0, 2, 3}, at::kLong).repeat({100, 1})));
}

TEST_F(XlaRandom, whole_numbers) {
  auto x = at::randint(-3, 7, {count}, options(at::kLong));
  EXPECT_EQ(x.scalar_type(), at::kLong);
  expect_mean_and_variance(x, 1.5, 8.25);  // (10² - 1) / 12
  expect_between(x, -3, 7);
  auto counts = at::bincount(x.cpu() + 3);
  EXPECT_EQ(counts.numel(), 10);
  EXPECT_NEAR(counts.min().item<double>(), count / 10.0, 700);
}

// An index out of its range would read beyond a table.
TEST_F(XlaRandom, large_whole_numbers_stay_below_their_bound) {
  auto x = at::randint(1000000, 1000010, {count}, options(at::kLong));
  expect_between(x, 1000000, 1000010);
  auto counts = at::bincount(x.cpu() - 1000000, {}, 10);
  EXPECT_NEAR(counts.min().item<double>(), count / 10.0, 700);
  EXPECT_NEAR(counts.max().item<double>(), count / 10.0, 700);
}

TEST_F(XlaRandom, whole_numbers_of_a_large_range_are_odd_as_often_as_even) {
  auto x = at::randint(int64_t{1} << 40, {count}, options(at::kLong)).cpu();
  EXPECT_NEAR(x.remainder(2).to(at::kDouble).mean().item<double>(), 0.5, 0.01);
}

TEST_F(XlaRandom, dropout_scales_what_it_keeps) {
  auto x = at::ones({count}, options());
  auto y = at::dropout(x, 0.25, /*train=*/true).cpu();
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.005);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.75, 1e-6);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
  EXPECT_TRUE(at::equal(at::dropout(x, 0.25, /*train=*/false).cpu(), x.cpu()));
}

TEST_F(XlaRandom, gradient_of_dropout_has_its_mask) {
  auto x = at::ones({1000}, options()).requires_grad_();
  auto y = at::dropout(x, 0.5, true);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad().cpu(), y.detach().cpu()));
}

TEST_F(XlaRandom, two_draws_of_a_step_are_independent) {
  auto a = at::rand({count}, options()), b = at::rand({count}, options()), c = at::randn({count}, options());
  EXPECT_LT(std::abs(correlation(a, b)), 0.015);
  EXPECT_LT(std::abs(correlation(a, c)), 0.015);
}

TEST_F(XlaRandom, neighbours_are_independent) {
  auto x = at::rand({count}, options()).cpu();
  for (int64_t distance : {1, 2, 64, 1000})
    EXPECT_LT(std::abs(correlation(x.slice(0, distance), x.slice(0, 0, -distance))), 0.015) << distance;
}

// What three steps of a loop draw: a rand, a dropout and a randn each. `read` reads on the host in between.
std::vector<Tensor> draws_of_three_steps(uint64_t seed, bool read) {
  Accelerator accelerator({.device = "xla"});
  set_seed(seed);
  auto options = at::TensorOptions().device(accelerator.device());
  std::vector<Tensor> all;
  for (int step = 0; step < 3; ++step) {
    auto first = at::rand({50}, options);
    if (read) (void)first.min().item<double>();
    auto second = at::dropout(first, 0.5, true);
    if (read) (void)second.max().item<double>();
    auto third = at::randn({50}, options);
    accelerator.end_step();
    for (const Tensor& tensor : {first, second, third}) all.push_back(tensor.cpu());
  }
  return all;
}

bool all_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

TEST_F(XlaRandom, same_seed_same_numbers) {
  EXPECT_TRUE(all_equal(draws_of_three_steps(3, false), draws_of_three_steps(3, false)));
}

TEST_F(XlaRandom, reading_in_the_middle_of_a_step_changes_no_number) {
  EXPECT_TRUE(all_equal(draws_of_three_steps(3, true), draws_of_three_steps(3, false)));
}

TEST_F(XlaRandom, other_seeds_and_other_steps_give_other_numbers) {
  auto three = draws_of_three_steps(3, false), four = draws_of_three_steps(4, false);
  for (size_t i = 0; i < three.size(); ++i) EXPECT_FALSE(at::equal(three[i], four[i])) << i;
  EXPECT_FALSE(at::equal(three[0], three[3]));
  EXPECT_FALSE(at::equal(three[0], three[6]));
  EXPECT_FALSE(at::equal(three[3], three[6]));
}

TEST_F(XlaRandom, a_seed_set_again_begins_again) {
  auto draw = [this] {
    auto x = at::rand({20}, options());
    accelerator.end_step();
    return x.cpu();
  };
  set_seed(5);
  auto first = draw(), second = draw();
  set_seed(5);
  EXPECT_TRUE(at::equal(draw(), first));
  EXPECT_TRUE(at::equal(draw(), second));
  at::manual_seed(6);
  auto third = draw();
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(draw(), first));
  at::manual_seed(6);
  EXPECT_TRUE(at::equal(draw(), third));
}

TEST_F(XlaRandom, order_of_randperm) {
  auto order = at::randperm(1000, options(at::kLong)).cpu();
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(1000)));
  EXPECT_FALSE(at::equal(order, at::arange(1000)));
}

TEST_F(XlaRandom, drawing_again_needs_no_program) {
  auto draw = [this](double deviation) {
    auto x = empty().normal_(0, deviation) + empty().uniform_(0, deviation) + empty().bernoulli_(deviation);
    accelerator.end_step();
    return x.sum().item<double>();
  };
  draw(0.5);
  auto before = xla::metrics().programs;
  draw(0.25), draw(1.0);
  EXPECT_EQ(xla::metrics().programs, before);
}

}  // namespace
}  // namespace ivme
