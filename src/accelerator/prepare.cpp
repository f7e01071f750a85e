#include <torch/nn/module.h>

#include <unordered_set>

#include "accelerator/model_facts.h"
#include "accelerator/names_on_xla.h"
#include "accelerator/recording.h"
#include "accelerator/state.h"
#include "ivme/accelerator.h"
#include "optim/parameter_groups.h"
#include "xla/step.h"

namespace ivme::detail {
namespace {

template <class T, class Same>
std::shared_ptr<T> find_prepared(const std::vector<std::weak_ptr<T>>& known, Same same) {
  for (const auto& object : held(known))
    if (same(*object)) return object;
  return nullptr;
}

size_t distinct(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) seen.insert(tensor.unsafeGetTensorImpl());
  return seen.size();
}

// Weights that are one tensor must still be one when the model has moved; else the optimizer would train half
// of them.
void move_and_keep_ties(torch::nn::Module& module, const c10::Device& device,
                        const std::function<void()>& tie) {
  size_t before = distinct(module.parameters());
  module.to(device);
  if (tie) tie();
  size_t after = distinct(module.parameters());
  if (after > before)
    throw Error("Moving the model to " + device.str() + " broke tied weights: " + std::to_string(before) +
                " parameters became " + std::to_string(after) +
                ". Give the model a tie_weights() that ties them again; prepare calls it.");
}

void create_gradients(const AcceleratorState& state, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined() || !parameter.requires_grad()) continue;
    parameter.mutable_grad() = optim::zeros_beside(parameter);
    xla::adopt(parameter.grad(), state.tracing, "a gradient");
  }
}

// State that began to exist in the first step would make the second one another program.
void create_state_on_xla(const AcceleratorState& state, const optim::Optimizer& optimizer) {
  const std::vector<at::Tensor> parameters = parameters_of(optimizer);
  for (const at::Tensor& parameter : parameters)
    if (!parameter.device().is_xla()) return;
  optimizer.impl()->create_state();
  if (state.settings.accumulation > 1) create_gradients(state, parameters);
  name_state(optimizer);
}

std::unique_ptr<BucketReducer> reducer_for(AcceleratorState& state, torch::nn::Module& module) {
  if (!state.group) return nullptr;
  std::vector<BucketReducer::Parameter> parameters;
  std::unordered_set<const void*> seen;
  auto sparse = sparse_gradient_parameters(module);
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      parameters.push_back({item.key(), item.value(), sparse.count(item.value().unsafeGetTensorImpl()) > 0});
  if (parameters.empty()) return nullptr;
  return std::make_unique<BucketReducer>(state.group, std::move(parameters), module.buffers(),
                                         state.options.data_parallel);
}

// The model's tensors belong to the accelerator's recording. Gradients that existed stay, for Module::to
// forgets them.
void begin_on_xla(AcceleratorState& state, torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    if (!parameter.device().is_xla()) continue;
    if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad().to(parameter.device());
  }
  adopt_module(module, state.tracing);
  for (const auto& optimizer : held(state.optimizers)) create_state_on_xla(state, optimizer->optimizer);
}

bool trains_batch_norm(const AcceleratorState& state) {
  for (const auto& model : held(state.models))
    if (model->module->is_training() && has_batch_norm(*model->module)) return true;
  return false;
}

}  // namespace

std::shared_ptr<ModelRuntime> prepare_module(AcceleratorState& state,
                                             std::shared_ptr<torch::nn::Module> module,
                                             const std::function<void()>& tie) {
  if (!module) throw Error("prepare was given an empty model holder. Construct the model first.");
  if (auto known = find_prepared(state.models, [&](const ModelRuntime& one) { return one.module == module; }))
    return known;
  if (state.options.device_placement) move_and_keep_ties(*module, state.settings.device, tie);
  if (state.tracing) begin_on_xla(state, *module);
  auto runtime = std::make_shared<ModelRuntime>();
  runtime->accelerator = state.shared_from_this();
  runtime->module = module;
  runtime->reducer = reducer_for(state, *module);
  state.models.push_back(runtime);
  if (state.recording) state.recording->model_prepared(*module);
  return runtime;
}

PreparedOptimizer prepare_optimizer(AcceleratorState& state, const optim::Optimizer& optimizer,
                                    const void* key) {
  auto prepared =
      find_prepared(state.optimizers, [&](const PreparedOptimizerState& one) { return one.key == key; });
  if (!prepared) {
    prepared = std::make_shared<PreparedOptimizerState>(
        PreparedOptimizerState{state.shared_from_this(), key, optimizer});
    prepared->number = static_cast<int>(state.optimizers.size());
    state.optimizers.push_back(prepared);
    if (state.tracing) create_state_on_xla(state, optimizer);
  }
  return PreparedOptimizer(prepared);
}

PreparedSchedule prepare_schedule(AcceleratorState& state, const optim::Schedule& schedule, const void* key) {
  auto prepared =
      find_prepared(state.schedules, [&](const PreparedScheduleState& one) { return one.key == key; });
  if (!prepared) {
    prepared = std::make_shared<PreparedScheduleState>(
        PreparedScheduleState{state.shared_from_this(), key, schedule});
    state.schedules.push_back(prepared);
  }
  return PreparedSchedule(prepared);
}

std::shared_ptr<LoaderCore> prepare_loader(AcceleratorState& state, const std::shared_ptr<LoaderCore>& core) {
  if (core->active == state.active) return core;
  Sharing sharing;
  sharing.active = state.active;
  sharing.group = state.group;
  sharing.num_processes = state.facts.num_processes;
  sharing.rank = state.facts.process_index;
  sharing.split_batches = state.options.sharing.split_batches;
  sharing.even_batches = state.options.sharing.even_batches;
  sharing.use_seedable_sampler = state.options.sharing.use_seedable_sampler;
  sharing.data_seed = state.options.sharing.data_seed;
  if (state.options.device_placement) sharing.device = state.settings.device;
  sharing.tracing = state.tracing;
  sharing.random = state.random;
  sharing.may_pad = state.options.sharing.pad_last_batch;
  sharing.trains_batch_norm = [accelerator = state.weak_from_this()] {
    auto alive = accelerator.lock();
    return alive && trains_batch_norm(*alive);
  };
  auto prepared = share(*core, sharing);
  prepared->keep_first_order = state.recording != nullptr;
  state.loaders.push_back(prepared);
  return prepared;
}

std::vector<at::Tensor> parameters_of(const ModelRuntime& runtime) { return runtime.module->parameters(); }

}  // namespace ivme::detail
