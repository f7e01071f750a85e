#pragma once
#include <ATen/core/TensorBody.h>

namespace ivme {

// The mean of the values whose mask is true: Σ mask·x / max(1, Σ mask), for losses of a batch that may have
// been padded.
//
//   auto per_sample = mse_loss(model(batch.data), batch.target, MSELossFuncOptions(torch::kNone)).mean(1);
//   accelerator.backward(ivme::masked_mean(per_sample, batch.mask));
//
// values: floating point, any shape. mask: bool, or numbers that are 0 or 1, on the same device; its shape is
// that of the values or of their first dimensions (one entry per sample, or per sample and token), and each
// entry stands for all that lies behind it, in both sums. Returns a 0-d tensor of the values' dtype. Values
// whose mask is false get the gradient 0, and may be anything, nan included. Throws Error when the shapes do
// not fit.
at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& mask);

}  // namespace ivme
