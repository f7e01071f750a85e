#include "ivme/masked_mean.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "message_of.h"

namespace ivme {
namespace {

using testing::HasSubstr;

at::Tensor mask_of(std::vector<int> bits) { return at::tensor(bits).to(at::kBool); }

TEST(MaskedMean, is_the_mean_of_the_values_whose_mask_is_true) {
  auto values = at::tensor({1.0f, 2.0f, 6.0f, 100.0f});
  EXPECT_EQ(masked_mean(values, mask_of({1, 1, 1, 0})).item<float>(), 3);
  EXPECT_EQ(masked_mean(values, mask_of({1, 1, 1, 1})).item<float>(), values.mean().item<float>());
  EXPECT_EQ(masked_mean(values, at::tensor({1.0f, 0.0f, 0.0f, 1.0f})).item<float>(), 50.5f);
  EXPECT_EQ(masked_mean(values, mask_of({0, 0, 0, 0})).item<float>(), 0);
}

TEST(MaskedMean, a_mask_of_samples_stands_for_all_their_values) {
  auto values = at::arange(12, at::kDouble).view({3, 2, 2});
  EXPECT_EQ(masked_mean(values, mask_of({1, 0, 1})).item<double>(), (0. + 1 + 2 + 3 + 8 + 9 + 10 + 11) / 8);
  auto tokens = mask_of({1, 1, 1, 0, 0, 0}).view({3, 2});
  EXPECT_EQ(masked_mean(values, tokens).item<double>(), (0. + 1 + 2 + 3 + 4 + 5) / 6);
}

TEST(MaskedMean, masked_values_get_no_gradient_whatever_they_are) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto values = at::tensor({1.0f, nan, 3.0f}).requires_grad_();
  auto mean = masked_mean(values, mask_of({1, 0, 1}));
  EXPECT_EQ(mean.item<float>(), 2);
  mean.backward();
  EXPECT_TRUE(at::equal(values.grad(), at::tensor({0.5f, 0.0f, 0.5f})));
}

// 257 is no bfloat16.
TEST(MaskedMean, half_precision_is_counted_in_float32) {
  auto mean = masked_mean(at::ones({257}, at::kBFloat16), at::ones({257}, at::kBool));
  EXPECT_EQ(mean.scalar_type(), at::kBFloat16);
  EXPECT_EQ(mean.item<float>(), 1);
}

TEST(MaskedMean, a_mask_that_does_not_fit_is_refused_naming_both_shapes) {
  EXPECT_THAT(test::message_of([] { masked_mean(at::ones({4, 3}), at::ones({3}, at::kBool)); }),
              testing::AllOf(HasSubstr("[4, 3]"), HasSubstr("[3]")));
  EXPECT_THAT(test::message_of([] { masked_mean(at::ones({4}), at::ones({4, 1}, at::kBool)); }),
              HasSubstr("[4, 1]"));
}

}  // namespace
}  // namespace ivme
