#pragma once
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"

namespace ivme::xla {

// The arguments of an elementwise operation in one dtype: that of the result, or f32 where the result is a
// half precision, as PyTorch's kernels compute.
class Elementwise {
 public:
  Elementwise(const Call& call, std::initializer_list<int> arguments)
      : Elementwise(call, result_type(call, arguments)) {}
  Elementwise(const Call& call, Dtype result)
      : call_(call), result_(result), compute_(compute_type(result)) {}

  Dtype compute() const { return compute_; }
  Hlo operator()(int argument) const {  // a tensor; or a Scalar, with dims {}
    return call_.argument(argument).kind == Argument::Kind::operand
               ? convert(call_.tensor(argument), compute_)
               : call_.scalar(argument, compute_);
  }
  std::vector<Hlo> result(const Hlo& x) const { return {convert(x, result_)}; }

 private:
  const Call& call_;
  Dtype result_, compute_;
};

}  // namespace ivme::xla
