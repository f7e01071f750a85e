#pragma once
#include <initializer_list>

#include "xla/lower/op.h"

namespace ivme::xla {

// The smallest dtype that holds both, as torch.promote_types.
Dtype promote(Dtype a, Dtype b);

// torch.result_type: tensors with dimensions decide; then 0-dimensional ones; then numbers, where a floating
// one counts as f32. A lower class only decides when it is of a higher kind (boolean < whole < floating).
class ResultType {
 public:
  void add(const Hlo& tensor, bool weak);
  void add_argument(const Call& call, int argument);  // a tensor, a Scalar, or None (nothing)
  Dtype dtype() const;

 private:
  std::optional<Dtype> with_dims_, without_dims_, numbers_;
};

Dtype result_type(const Call& call, std::initializer_list<int> arguments);

Dtype floating_type(Dtype dtype);  // f32 for whole numbers and booleans
Dtype compute_type(Dtype dtype);   // f32 for half precisions: in what PyTorch's kernels compute
Dtype sum_type(Dtype dtype);       // i64 for whole numbers and booleans

}  // namespace ivme::xla
