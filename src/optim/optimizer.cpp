#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <sstream>
#include <unordered_map>

#include "ivme/error.h"
#include "ivme/optim.h"
#include "optim/parameter_groups.h"

namespace ivme::optim {

OptimizerImpl::~OptimizerImpl() = default;

void OptimizerImpl::zero_grad(bool set_to_none) {
  c10::AutoGradMode no_grad(false);
  for (size_t g = 0; g < num_groups(); ++g) {
    for (const at::Tensor& parameter : parameters(g)) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (set_to_none) {
        gradient.reset();
        continue;
      }
      // detach_() would throw on a view; a fresh alias shares the bucket's memory just as well.
      if (gradient.requires_grad()) gradient = gradient.detach();
      gradient.zero_();
    }
  }
}

double OptimizerImpl::initial_lr(size_t group) {
  const double now = lr(group);  // throws if there is no such group
  if (initial_lrs_.size() <= group) initial_lrs_.resize(group + 1);
  if (!initial_lrs_[group]) initial_lrs_[group] = now;
  return *initial_lrs_[group];
}

Optimizer::Optimizer(std::shared_ptr<OptimizerImpl> impl) : impl_(std::move(impl)) {
  if (!impl_) throw Error("An optimizer handle was asked for. There is no optimizer behind it. Pass one.");
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < num_groups(); ++g) impl_->set_lr(g, lr);
}

void check_parameters(const std::string& optimizer, std::vector<std::vector<at::Tensor>*> groups) {
  std::unordered_map<const void*, size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor> once;
    for (const at::Tensor& parameter : *groups[g]) {
      if (!parameter.defined())
        throw Error(optimizer +
                    " was given an undefined tensor as a parameter. It cannot be updated. "
                    "Leave it out of the list.");
      if (!parameter.is_leaf())
        throw Error(optimizer +
                    " was given the result of an operation as a parameter. Only tensors made by "
                    "the program itself (leaves) keep a gradient. Pass the tensor it was computed from.");
      const auto [place, is_new] = group_of.try_emplace(parameter.unsafeGetTensorImpl(), g);
      if (place->second != g)
        throw Error(optimizer + " was given one parameter in groups " + std::to_string(place->second) +
                    " and " + std::to_string(g) +
                    ". It would be updated twice per step. Keep it in one of them.");
      if (is_new) once.push_back(parameter);
    }
    *groups[g] = std::move(once);
  }
  if (group_of.empty())
    throw Error(optimizer + " was given no parameter. There is nothing to train. Pass module->parameters().");
}

at::Tensor zeros_beside(const at::Tensor& tensor) {
  if (!tensor.device().is_xla()) return at::zeros_like(tensor);
  return at::zeros(tensor.sizes(), tensor.options().device(at::kCPU)).to(tensor.device());
}

void check_option(bool valid, const std::string& optimizer, const std::string& name, double value,
                  const std::string& range) {
  if (valid) return;
  std::ostringstream message;
  message << optimizer << " was given " << name << " = " << value << ". It must be " << range
          << ". Choose such a value.";
  throw Error(message.str());
}

void throw_sparse_gradient(const std::string& optimizer) {
  throw Error(optimizer +
              " was asked to apply a sparse gradient. It updates dense parameters only. Turn off "
              "sparse gradients in the embedding.");
}

}  // namespace ivme::optim
