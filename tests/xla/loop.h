#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ivme/ivme.h"

// What the tests of training on xla share.
namespace ivme::test {

// A training program: the losses of its steps, on this device, with floating point numbers of this type.
using Program = std::function<std::vector<double>(const std::string& device, at::ScalarType type)>;

inline void expect_close(const std::vector<double>& losses, const std::vector<double>& expected,
                         double tolerance) {
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_LE(std::abs(losses[i] - expected[i]), tolerance * std::abs(expected[i]))
        << "step " << i << ": " << losses[i] << " instead of " << expected[i];
}

// Tolerances are relative. Rounding in float32 grows from step to step, so that only the first steps tell.
inline void expect_the_losses_of_the_cpu(const Program& program) {
  expect_close(program("xla", at::kFloat), program("cpu", at::kFloat), 1e-5);
  expect_close(program("xla", at::kDouble), program("cpu", at::kDouble), 1e-7);
}

}  // namespace ivme::test
