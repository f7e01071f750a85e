#pragma once
#include <ATen/core/TensorBody.h>

namespace ivme::detail {

// What cross_entropy and nll_loss leave out by default.
constexpr int64_t ignored_class = -100;

// Whether a tensor of this dtype can hold classes, and ignored_class among them.
inline bool holds_classes(at::ScalarType type) {
  return type == at::kLong || type == at::kInt || type == at::kShort || type == at::kChar;
}

}  // namespace ivme::detail
