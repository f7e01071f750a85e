#include "optim/torch_state.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "optim/parameter_groups.h"

namespace ivme::optim {
namespace {

namespace torch_optim = torch::optim;

template <class State, class Options>
std::unique_ptr<torch_optim::OptimizerParamState> moments(const at::Tensor& parameter,
                                                          const Options& options) {
  auto state = std::make_unique<State>();
  state->step(0);
  state->exp_avg(zeros_beside(parameter));
  state->exp_avg_sq(zeros_beside(parameter));
  if (options.amsgrad()) state->max_exp_avg_sq(zeros_beside(parameter));
  return state;
}

// Null where the first step makes none, or another one than zeros.
std::unique_ptr<torch_optim::OptimizerParamState> state_for(const at::Tensor& parameter,
                                                            const torch_optim::OptimizerOptions& given) {
  if (auto* adam = dynamic_cast<const torch_optim::AdamOptions*>(&given))
    return moments<torch_optim::AdamParamState>(parameter, *adam);
  if (auto* adamw = dynamic_cast<const torch_optim::AdamWOptions*>(&given))
    return moments<torch_optim::AdamWParamState>(parameter, *adamw);
  if (auto* rmsprop = dynamic_cast<const torch_optim::RMSpropOptions*>(&given)) {
    auto state = std::make_unique<torch_optim::RMSpropParamState>();
    state->step(0);
    state->square_avg(zeros_beside(parameter));
    if (rmsprop->momentum() > 0) state->momentum_buffer(zeros_beside(parameter));
    if (rmsprop->centered()) state->grad_avg(zeros_beside(parameter));
    return state;
  }
  auto* sgd = dynamic_cast<const torch_optim::SGDOptions*>(&given);
  if (!sgd || sgd->momentum() == 0 || sgd->dampening() != 0) return nullptr;
  auto state = std::make_unique<torch_optim::SGDParamState>();
  state->momentum_buffer(zeros_beside(parameter));
  return state;
}

// Adagrad makes its state when it is constructed, where the parameters were then.
void move_sums(torch_optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return;
  auto& state = static_cast<torch_optim::AdagradParamState&>(*found->second);
  if (state.sum().device() != parameter.device()) state.sum(state.sum().to(parameter.device()));
}

}  // namespace

bool create_torch_state(torch_optim::Optimizer& optimizer) {
  const bool is_adagrad = dynamic_cast<torch_optim::Adagrad*>(&optimizer);
  if (!is_adagrad && !dynamic_cast<torch_optim::Adam*>(&optimizer) &&
      !dynamic_cast<torch_optim::AdamW*>(&optimizer) && !dynamic_cast<torch_optim::RMSprop*>(&optimizer) &&
      !dynamic_cast<torch_optim::SGD*>(&optimizer))
    return false;
  for (auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      void* key = parameter.unsafeGetTensorImpl();
      if (is_adagrad)
        move_sums(optimizer, parameter);
      else if (parameter.requires_grad() && !optimizer.state().count(key))
        if (auto state = state_for(parameter, group.options())) optimizer.state()[key] = std::move(state);
    }
  return true;
}

}  // namespace ivme::optim
