#include "data/padding.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include "ivme/data_loader.h"

namespace ivme::detail {

bool Padding::has_row_per_sample(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == samples_;
}

void Padding::pad_target(at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const bool classes = has_row_per_sample(tensor) && holds_classes(tensor.scalar_type());
  if (!classes) {
    others_ = true;
    return;
  }
  classes_ = true;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = rows_ - samples_;
  tensor = at::cat({tensor, at::full(shape, ignored_class, tensor.options())});
}

void Padding::pad(at::Tensor& tensor) const {
  if (!has_row_per_sample(tensor)) return;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = rows_ - samples_;
  tensor = at::cat({tensor, tensor.narrow(0, 0, 1).expand(shape)});
}

}  // namespace ivme::detail
