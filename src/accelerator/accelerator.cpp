#include "ivme/accelerator.h"

#include <ATen/ops/div.h>
#include <torch/nn/module.h>

#include <iostream>

#include "accelerator/recording.h"
#include "accelerator/state.h"
#include "accelerator/uncalled_models.h"
#include "gradients/clip.h"
#include "precision/autocast.h"
#include "process/collectives.h"
#include "process/seed_rank.h"
#include "xla/replay/capture.h"
#include "xla/step.h"

namespace ivme {

using detail::ModelRuntime;

namespace detail {

AcceleratorState::~AcceleratorState() = default;

std::unique_ptr<Autocast> AcceleratorState::autocast() const {
  if (settings.precision == Precision::no) return nullptr;
  return std::make_unique<Autocast>(settings.device.type(), at::kBFloat16);
}

bool AcceleratorState::is_at_last_batch() const {
  const LoaderCore* loader = active->top();
  return options.sync_with_dataloader && loader && loader->end;
}

bool AcceleratorState::ends_the_accumulation() const {
  return is_at_last_batch() || (sync.micro_batches + 1) % settings.accumulation == 0;
}

void AcceleratorState::begin_micro_batch() {
  if (sync.sync && settings.accumulation > 1)
    for (const auto& optimizer : held(optimizers)) optimizer->settle_gradients();
  sync.sync = ends_the_accumulation();
  sync.micro_batches = is_at_last_batch() ? 0 : sync.micro_batches + 1;
}

void AcceleratorState::bump_gradients() {
  for (const auto& optimizer : held(optimizers))
    for (const at::Tensor& parameter : parameters_of(optimizer->optimizer))
      if (parameter.grad().defined()) parameter.grad().unsafeGetTensorImpl()->bump_version();
}

at::Tensor gather(AcceleratorState& state, const at::Tensor& tensor) {
  if (state.group) return ivme::gather(*state.group, tensor);
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

at::Tensor gather_for_metrics(AcceleratorState& state, const at::Tensor& tensor) {
  // On xla metrics are worked out on the host: what is done with them is no part of a program.
  at::Tensor all = gather(state, tensor.device().is_xla() ? tensor.cpu() : tensor);
  const LoaderCore* loader = state.active->top();
  if (!loader || !loader->in_hand || loader->in_hand->real <= 0 || tensor.dim() == 0) return all;
  const BatchPlan& batch = *loader->in_hand;
  const bool row_per_sample = tensor.size(0) == batch.rows && all.size(0) > batch.real;
  if (!row_per_sample) return all;
  loader->gathered = true;
  return all.narrow(0, 0, batch.real);
}

std::vector<std::string> gather_strings(AcceleratorState& state, const std::vector<std::string>& strings,
                                        bool for_metrics) {
  auto all = state.group ? ivme::gather(*state.group, strings) : strings;
  const LoaderCore* loader = state.active->top();
  if (!for_metrics || !loader || !loader->in_hand || loader->in_hand->real <= 0) return all;
  const BatchPlan& batch = *loader->in_hand;
  if (strings.size() == batch.indices.size() && all.size() > static_cast<size_t>(batch.real))
    all.resize(batch.real);
  return all;
}

at::Tensor reduce(AcceleratorState& state, const at::Tensor& tensor, Reduction reduction) {
  return state.group ? ivme::reduce(*state.group, tensor, reduction) : tensor.detach().clone();
}

at::Tensor pad(AcceleratorState& state, const at::Tensor& tensor, int64_t dim, double value, bool first) {
  return state.group ? ivme::pad(*state.group, tensor, dim, value, first) : tensor;
}

}  // namespace detail

Accelerator::Accelerator(const AcceleratorOptions& options)
    : state_(std::make_shared<detail::AcceleratorState>()) {
  state_->options = options;
  state_->facts = process_facts();
  state_->settings = detail::decide(options, state_->facts);
  const ProcessFacts& facts = state_->facts;
  set_rank_for_seeds(facts.process_index);
  if (state_->settings.device.is_xla())
    state_->tracing = xla::begin_recording({.tpu = state_->settings.tpu,
                                            .expected_programs = state_->settings.accumulation > 1 ? 2 : 1,
                                            .max_programs = state_->settings.max_programs});
  else if (options.row_keyed_dropout)
    state_->random = std::make_shared<RandomPlace>();
  if (facts.num_processes > 1)
    state_->group = Group::join(facts, state_->settings.device.type(), state_->settings.timeout);
  if (state_->settings.record.empty()) return;
  static int records = 0;
  record::RecordOptions record;
  record.path = state_->settings.record;
  record.micro = options.record_micro;
  record.rank = facts.process_index;
  record.world_size = facts.num_processes;
  record.name = std::to_string(records++);
  state_->recording =
      std::make_unique<Recording>(*state_, record, state_->group ? state_->group->board() : nullptr);
}

Accelerator::~Accelerator() {
  // Prepared objects may outlive the accelerator; the record ends with it.
  state_->recording.reset();
  if (state_->tracing) xla::finish_runs();
}

void Accelerator::backward(const at::Tensor& loss, const BackwardOptions& options) {
  const detail::LoaderCore* loader = state_->active->top();
  if (loader) detail::check_padding(*loader);
  if (state_->recording) state_->recording->backward(loss, loader);
  int64_t steps = state_->settings.accumulation;
  at::Tensor share = steps == 1 ? loss : at::div(loss, steps);
  const std::function<void()> run = [&] {
    share.backward(options.gradient.value_or(at::Tensor()), options.retain_graph || options.create_graph,
                   options.create_graph);
  };
  detail::UncalledModels uncalled(*state_);
  if (state_->group)
    state_->group->run("the all-reduce of gradients in backward", run);
  else if (state_->tracing)
    xla::run_backward(run);
  else
    run();
  uncalled.check();
  if (state_->tracing) xla::hold(state_->tracing, loss);
  if (xla::Capture* capture = xla::Capture::current(); capture && steps > 1)
    capture->note_action([state = state_.get()] { state->bump_gradients(); });
}

SyncScope Accelerator::enter_no_sync(const std::vector<std::shared_ptr<ModelRuntime>>& models) {
  std::vector<bool> before;
  for (const auto& model : models) before.push_back(std::exchange(model->skip_sync, true));
  return SyncScope([models, before] {
    for (size_t i = 0; i < models.size(); ++i) models[i]->skip_sync = before[i];
  });
}

SyncScope Accelerator::enter_accumulate(std::vector<std::shared_ptr<ModelRuntime>> models) {
  detail::SyncState& sync = state_->sync;
  state_->begin_micro_batch();
  if (xla::Capture* capture = xla::Capture::current())
    capture->note_action([state = state_.get()] { state->begin_micro_batch(); });
  ++sync.open_scopes;
  if (state_->recording) state_->recording->micro_batch_entered();
  if (models.empty()) models = detail::held(state_->models);
  auto no_sync = std::make_shared<SyncScope>(sync.sync ? SyncScope(nullptr) : enter_no_sync(models));
  return SyncScope([state = state_, no_sync] {
    --state->sync.open_scopes;
    if (state->recording && state->active->top() && state->active->top()->end)
      state->recording->epoch_ended();
  });
}

bool Accelerator::sync_gradients() const { return state_->sync.sync; }

at::Tensor Accelerator::clip_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                                  double norm_type) {
  at::Tensor total = gradient_norm(parameters, norm_type);
  if (!state_->sync.sync) return total;
  if (state_->recording && norm_type == 2.0) state_->recording->before_clip(parameters, total);
  scale_to_norm(parameters, total, max_norm);
  return total;
}

void Accelerator::clip_value_of(const std::vector<at::Tensor>& parameters, double clip_value) {
  if (!state_->sync.sync) return;
  if (state_->recording) state_->recording->before_clip(parameters, gradient_norm(parameters, 2.0));
  clip_to_value(parameters, clip_value);
}

SyncScope Accelerator::autocast() {
  std::shared_ptr<Autocast> scope = state_->autocast();
  return SyncScope([scope]() mutable { scope.reset(); });
}

void Accelerator::end_step() {
  if (state_->tracing) xla::end_step(state_->tracing);
  if (state_->random) state_->random->end_step();
}

std::shared_ptr<detail::StepReplay> Accelerator::step_replay(const CompileOptions& options,
                                                             std::source_location where) {
  return state_->tracing ? std::make_shared<detail::StepReplay>(state_, options, where) : nullptr;
}

void Accelerator::wait_for_everyone(const std::string& what) {
  if (state_->group) state_->group->barrier(what);
}

c10::Device Accelerator::device() const { return state_->settings.device; }

DistributedType Accelerator::distributed_type() const {
  if (state_->tracing) return DistributedType::XLA;
  if (state_->facts.num_processes == 1) return DistributedType::NO;
  return state_->settings.device.is_cuda() ? DistributedType::MULTI_GPU : DistributedType::MULTI_CPU;
}

int Accelerator::num_processes() const { return state_->facts.num_processes; }
int Accelerator::process_index() const { return state_->facts.process_index; }
int Accelerator::local_process_index() const { return state_->facts.local_process_index; }
Precision Accelerator::mixed_precision() const { return state_->settings.precision; }
int64_t Accelerator::gradient_accumulation_steps() const { return state_->settings.accumulation; }

bool Accelerator::optimizer_step_was_skipped() const {
  for (const auto& optimizer : detail::held(state_->optimizers))
    if (optimizer->step_was_skipped) return true;
  return false;
}

int64_t Accelerator::observed_batch_size() const {
  if (const detail::LoaderCore* loader = state_->active->top())
    return detail::global_batch_of(*loader) * state_->settings.accumulation;
  auto loaders = detail::held(state_->loaders);
  if (loaders.empty())
    throw Error(
        "observed_batch_size was asked for, but no loader is prepared yet. Prepare one first, or pass the "
        "loader.");
  const int64_t first = detail::global_batch_of(*loaders.front());
  for (const auto& loader : loaders)
    if (const int64_t other = detail::global_batch_of(*loader); other != first)
      throw Error("observed_batch_size was asked for, but the prepared loaders have batches of " +
                  std::to_string(first) + " and of " + std::to_string(other) +
                  " samples. Pass the loader that trains: observed_batch_size(loader).");
  return first * state_->settings.accumulation;
}

void Accelerator::write_line(const std::string& line) { std::cout << line << std::endl; }

void Accelerator::log_final(const std::vector<std::pair<std::string, double>>& metrics) {
  if (state_->recording) state_->recording->final(metrics);
}

void Accelerator::count_tokens(int64_t n) {
  if (state_->recording) state_->recording->count_tokens(n);
}

}  // namespace ivme
