#pragma once
#include <ATen/core/TensorBody.h>

#include <vector>

namespace ivme {

// Norm of the norms of the gradients of `parameters` (those that have one), a 0-d tensor; 0 without any.
at::Tensor gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type);

// Multiplies every gradient by min(1, max_norm / (total + 1e-6)), also when that is 1: PyTorch's
// clip_grad_norm_.
void scale_to_norm(const std::vector<at::Tensor>& parameters, const at::Tensor& total, double max_norm);

void clip_to_value(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace ivme
