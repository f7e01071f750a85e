#include "ivme/prepared.h"

#include "accelerator/names_on_xla.h"
#include "accelerator/recording.h"
#include "accelerator/state.h"
#include "accelerator/uncalled_models.h"
#include "xla/replay/capture.h"
#include "xla/step.h"

namespace ivme {

namespace detail {
namespace {

std::vector<std::pair<const void*, uint32_t>> gradients_now(const optim::Optimizer& optimizer) {
  std::vector<std::pair<const void*, uint32_t>> gradients;
  for (const at::Tensor& parameter : parameters_of(optimizer))
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
      gradients.emplace_back(gradient.unsafeGetTensorImpl(), gradient._version());
  return gradients;
}

// A replay of the step that is being captured does the host's part of this one.
void note_step(xla::Capture& capture, const std::shared_ptr<PreparedOptimizerState>& state) {
  auto host_part = state->optimizer.impl()->host_part();
  capture.end_action({});
  if (!host_part)
    return capture.refuse("what " + state->optimizer.description().name +
                          " counts from step to step is not known" + CallSite::here().where() +
                          ". Use the optimizer of ivme::optim");
  capture.end_action([state, host_part = std::move(host_part)] {
    AcceleratorState& accelerator = *state->accelerator;
    accelerator.early_end.before_step(accelerator, *state);
    host_part();
    if (accelerator.settings.accumulation > 1) state->settle_gradients();
    accelerator.early_end.after_step(accelerator, *state);
  });
}

}  // namespace

std::vector<at::Tensor> parameters_of(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (size_t group = 0; group < optimizer.num_groups(); ++group) {
    const auto& some = optimizer.impl()->parameters(group);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void PreparedOptimizerState::settle_gradients() { settled = gradients_now(optimizer); }

bool PreparedOptimizerState::has_unused_gradients() const {
  auto now = gradients_now(optimizer);
  return !now.empty() && now != settled;
}

}  // namespace detail

void PreparedOptimizer::step() {
  detail::AcceleratorState& accelerator = *state_->accelerator;
  if (!accelerator.sync.sync) return;
  if (accelerator.group) detail::check_averaged(accelerator, *state_);
  accelerator.early_end.before_step(accelerator, *state_);
  if (accelerator.recording) accelerator.recording->before_step(*state_);
  xla::Capture* capture = xla::Capture::current();
  if (capture) capture->begin_action();
  state_->optimizer.step();
  if (capture) detail::note_step(*capture, state_);
  if (xla::wants_lines(accelerator.tracing)) detail::name_state(state_->optimizer);
  if (accelerator.settings.accumulation > 1) state_->settle_gradients();
  if (accelerator.recording) accelerator.recording->after_step(*state_);
  accelerator.early_end.after_step(accelerator, *state_);
}

void PreparedOptimizer::zero_grad(bool set_to_none) {
  const detail::SyncState& sync = state_->accelerator->sync;
  bool accumulating = state_->accelerator->settings.accumulation > 1 && (sync.open_scopes > 0 || !sync.sync);
  if (accumulating && state_->has_unused_gradients()) return;
  // On xla a micro-batch that adds to gradients and one that makes them would be two programs.
  const bool keep = state_->accelerator->tracing && state_->accelerator->settings.accumulation > 1;
  state_->optimizer.zero_grad(set_to_none && !keep);
}

double PreparedOptimizer::lr(size_t group) const { return state_->optimizer.lr(group); }
void PreparedOptimizer::set_lr(double lr) {
  if (xla::Capture* capture = xla::Capture::current())
    capture->refuse("it sets a learning rate" + CallSite::here().where() + ". Do that between the calls");
  state_->optimizer.set_lr(lr);
}
bool PreparedOptimizer::step_was_skipped() const { return state_->step_was_skipped; }
optim::Optimizer PreparedOptimizer::unwrap() const { return state_->optimizer; }

void PreparedSchedule::step() {
  if (xla::Capture* capture = xla::Capture::current())
    capture->note_schedule([state = state_] { PreparedSchedule(state).step(); });
  detail::AcceleratorState& accelerator = *state_->accelerator;
  if (!accelerator.options.step_scheduler_with_optimizer) return state_->schedule.step();
  if (!accelerator.sync.sync) return;
  for (const auto& optimizer : detail::held(accelerator.optimizers))
    if (optimizer->step_was_skipped &&
        (!state_->schedule.optimizer() || state_->schedule.optimizer() == optimizer->optimizer.impl()))
      return;
  int steps = accelerator.options.sharing.split_batches ? 1 : accelerator.facts.num_processes;
  for (int i = 0; i < steps; ++i) state_->schedule.step();
}

double PreparedSchedule::lr(size_t group) const { return state_->schedule.lr(group); }
std::vector<double> PreparedSchedule::last_lr() const { return state_->schedule.last_lr(); }
int64_t PreparedSchedule::last_epoch() const { return state_->schedule.last_epoch(); }
optim::Schedule PreparedSchedule::unwrap() const { return state_->schedule; }

}  // namespace ivme
