#pragma once
#include <ATen/ScalarOps.h>
#include <ATen/core/TensorBody.h>

namespace ivme::optim {

// A number that many in-place operations take, made once. `tensor.mul_(0.9)` makes a float64 tensor of 0.9
// in every call, and for a float32 tensor converts it; here that conversion, the same, is made beforehand.
// (bfloat16 and float16 kernels compute with the unconverted number.)
class Number {
 public:
  Number() = default;
  explicit Number(double value)
      : as_double_(at::native::wrapped_scalar_tensor(value)), as_float_(as_double_.to(at::kFloat)) {}

  const at::Tensor& of(const at::Tensor& tensor) const {
    return tensor.scalar_type() == at::kFloat ? as_float_ : as_double_;
  }

 private:
  at::Tensor as_double_, as_float_;
};

}  // namespace ivme::optim
