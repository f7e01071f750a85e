#include "gradients/clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <unordered_set>

namespace ivme {
namespace {

// A parameter listed twice has one gradient.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : parameters)
    if (const at::Tensor& gradient = parameter.grad();
        gradient.defined() && seen.insert(gradient.unsafeGetTensorImpl()).second)
      gradients.push_back(gradient);
  return gradients;
}

}  // namespace

at::Tensor gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients_of(parameters))
    norms.push_back(at::linalg_vector_norm(gradient, norm_type));
  if (norms.empty()) return at::zeros({});
  for (at::Tensor& norm : norms) norm = norm.to(norms.front().device());
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

void scale_to_norm(const std::vector<at::Tensor>& parameters, const at::Tensor& total, double max_norm) {
  at::NoGradGuard no_grad;
  at::Tensor factor = total.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (at::Tensor& gradient : gradients_of(parameters)) gradient.mul_(factor.to(gradient.device()));
}

void clip_to_value(const std::vector<at::Tensor>& parameters, double clip_value) {
  at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients_of(parameters)) gradient.clamp_(-clip_value, clip_value);
}

}  // namespace ivme
