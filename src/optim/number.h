#pragma once
#include <ATen/ScalarOps.h>
#include <ATen/core/TensorBody.h>

#include <utility>

#include "xla/trace/host_number.h"

namespace ivme::optim {

// A number that many in-place operations take, made once. `tensor.mul_(0.9)` makes a float64 tensor of 0.9
// in every call, and for a float32 tensor converts it; here that conversion, the same, is made beforehand.
// (bfloat16 and float16 kernels compute with the unconverted number.)
class Number {
 public:
  Number() = default;
  explicit Number(double value)
      : value_(value),
        as_double_(at::native::wrapped_scalar_tensor(value)),
        as_float_(as_double_.to(at::kFloat)) {}

  // For tensors like this one. The function, of double, is what a replayed step on xla asks again.
  template <class Function>
  static Number beside(const at::Tensor& tensor, Function function) {
    Number number(function());
    if (!tensor.device().is_xla() || !xla::asks_optimizers()) return number;
    number.source_ = std::make_shared<const xla::HostNumber>(std::move(function));
    xla::carry(number.as_double_, number.source_);
    xla::carry(number.as_float_, number.source_);
    return number;
  }

  const at::Tensor& of(const at::Tensor& tensor) const {
    return tensor.scalar_type() == at::kFloat ? as_float_ : as_double_;
  }
  at::Scalar scalar() const { return source_ ? xla::carry(value_, source_) : at::Scalar(value_); }

 private:
  double value_ = 0;
  at::Tensor as_double_, as_float_;
  std::shared_ptr<const xla::HostNumber> source_;
};

}  // namespace ivme::optim
