#include "accelerator/names_on_xla.h"

#include <torch/nn/module.h>

#include <unordered_map>

#include "accelerator/state.h"
#include "optim/named_state.h"
#include "xla/step.h"

namespace ivme::detail {
namespace {

using Items = torch::OrderedDict<std::string, at::Tensor>;

void adopt_all(const std::string& kind, const Items& items, const std::shared_ptr<xla::Context>& tracing) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !tensor.device().is_xla()) continue;
    const auto [first, is_new] = names.try_emplace(tensor.unsafeGetTensorImpl(), kind + " " + item.key());
    if (!is_new) {
      std::string& name = first->second;
      name = name.back() == ')' ? name.substr(0, name.size() - 1) + ", " + item.key() + ")"
                                : name + " (also " + item.key() + ")";
    }
    xla::adopt(tensor, tracing, first->second);
  }
}

void name_after(const at::Tensor& parameter, const char* what, const at::Tensor& tensor) {
  const std::string owner = xla::name_of(parameter);
  if (!owner.empty() && tensor.device().is_xla()) xla::set_name(tensor, std::string(what) + " of " + owner);
}

}  // namespace

void adopt_module(const torch::nn::Module& module, const std::shared_ptr<xla::Context>& tracing) {
  adopt_all("parameter", module.named_parameters(), tracing);
  adopt_all("buffer", module.named_buffers(), tracing);
}

void name_state(const optim::Optimizer& optimizer) {
  for (const at::Tensor& parameter : parameters_of(optimizer))
    if (parameter.grad().defined()) name_after(parameter, "gradient", parameter.grad());
  if (const auto* state = dynamic_cast<const optim::NamedState*>(optimizer.impl().get()))
    state->for_each_state(name_after);
}

}  // namespace ivme::detail
