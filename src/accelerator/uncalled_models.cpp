#include "accelerator/uncalled_models.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <iostream>
#include <unordered_set>

namespace ivme::detail {

UncalledModels::UncalledModels(const AcceleratorState& state) : several_ranks_(state.group != nullptr) {
  for (const auto& model : held(state.models)) {
    bool suspect = several_ranks_ ? model->reducer && !model->skip_sync && !model->called_since_backward
                                  : !model->called;
    if (suspect) suspects_.emplace_back(model, gradients(*model));
    model->called_since_backward = false;
  }
}

UncalledModels::Gradients UncalledModels::gradients(const ModelRuntime& model) {
  Gradients all;
  for (const at::Tensor& parameter : model.module->parameters()) {
    const at::Tensor& gradient = parameter.grad();
    all.emplace_back(gradient.unsafeGetTensorImpl(), gradient.defined() ? gradient._version() : 0);
  }
  return all;
}

void UncalledModels::check() const {
  for (const auto& [model, before] : suspects_) {
    if (gradients(*model) == before) continue;
    throw Error(
        "backward gave gradients to a prepared " + model->module->name() +
        (several_ranks_
             ? " without a call of it since the last backward, so they are not reduced over the ranks. "
             : " that was never called as the prepared object. ") +
        "Call model(x), not model->forward(x), once before each backward.");
  }
}

void check_averaged(const AcceleratorState& state, PreparedOptimizerState& optimizer) {
  std::unordered_set<const void*> own, averaged;
  for (const at::Tensor& parameter : parameters_of(optimizer.optimizer))
    if (parameter.grad().defined()) own.insert(parameter.unsafeGetTensorImpl());
  for (const auto& model : held(state.models)) {
    if (!model->reducer) continue;
    bool trained = false;
    for (const auto& parameter : model->reducer->parameters()) {
      const void* key = parameter.tensor.unsafeGetTensorImpl();
      averaged.insert(key);
      trained = trained || own.count(key) > 0;
    }
    if (trained) model->reducer->check_finished();
  }
  if (optimizer.told || std::ranges::all_of(own, [&](const void* key) { return averaged.count(key) > 0; }))
    return;
  optimizer.told = true;
  if (state.facts.process_index == 0)
    std::cerr
        << "ivme: an optimizer updates parameters of no prepared model, so their gradients are not "
           "averaged over the ranks and the ranks part. Pass the model to prepare, or average them yourself."
        << std::endl;
}

}  // namespace ivme::detail
