#include "ivme/masked_mean.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include <sstream>

#include "ivme/error.h"

namespace ivme {

at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& mask) {
  if (mask.dim() > values.dim() || values.sizes().slice(0, mask.dim()) != mask.sizes()) {
    std::ostringstream message;
    message << "masked_mean was asked for the mean of values of shape " << values.sizes()
            << " under a mask of shape " << mask.sizes()
            << ". Give a mask with the values' shape, or with that of their first dimensions.";
    throw Error(message.str());
  }
  at::Tensor counted = mask.scalar_type() == at::kBool ? mask : mask.ne(0);
  while (counted.dim() < values.dim()) counted = counted.unsqueeze(-1);
  const auto type = at::toOpMathType(values.scalar_type());
  const int64_t for_each = counted.numel() > 0 ? values.numel() / counted.numel() : 0;
  at::Tensor sum = values.masked_fill(counted.logical_not(), 0).sum(type);
  return (sum / (counted.sum(type) * for_each).clamp_min(1)).to(values.scalar_type());
}

}  // namespace ivme
