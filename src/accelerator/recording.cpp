#include "accelerator/recording.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "accelerator/model_facts.h"
#include "accelerator/state.h"
#include "gradients/clip.h"
#include "ivme/version.h"
#include "process/seed_rank.h"
#include "support/hash.h"
#include "xla/step.h"

extern char** environ;

namespace ivme {
namespace {

bool same_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].is_same(b[i])) return false;
  return true;
}

std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& tensor : tensors) norms.push_back(at::linalg_vector_norm(tensor.detach(), 2.0));
  return norms;
}

double root_of_squares(const std::vector<at::Tensor>& norms) {
  double squares = 0;
  for (const at::Tensor& one : norms) {
    const double norm = one.item<double>();
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// What may change a run's numbers or speed.
record::Strings relevant_environment() {
  record::Strings variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    std::string name = text.substr(0, text.find('='));
    for (const char* prefix : {"IVME_", "ACCELERATE_", "OMP_", "MKL_", "ATEN_", "ONEDNN_",
                               "CUDA_VISIBLE_DEVICES", "PJRT_DEVICE", "WORLD_SIZE"})
      if (name.starts_with(prefix)) variables.emplace_back(name, text.substr(name.size() + 1));
  }
  std::sort(variables.begin(), variables.end());
  return variables;
}

}  // namespace

Recording::Recording(const detail::AcceleratorState& state, record::RecordOptions options,
                     std::shared_ptr<record::Board> board)
    : state_(state), record_(std::move(options), std::move(board)), every_(state.options.record_every) {}

Recording::~Recording() {
  try {
    read(Which::all);
  } catch (const std::exception& failure) {
    std::cerr << "ivme: the record's last steps could not be read: " << failure.what() << std::endl;
  }
}

void Recording::epoch_ended() {
  read(Which::those_that_exist);
  record_.publish();
}

void Recording::final(const record::Numbers& metrics) {
  read(Which::all);
  record_.final(metrics);
}

void Recording::read(Which which) {
  while (!unread_.empty()) {
    Unread& step = unread_.front();
    // The gradient's norm is made by the same program as the step's other numbers.
    if (which == Which::those_that_exist && xla::is_pending(step.grad_norm)) return;
    record::StepEntry& entry = step.entry;
    entry.grad_norm = step.grad_norm.item<double>();
    for (const at::Tensor& loss : step.losses) entry.micro_losses.push_back(loss.cpu().sum().item<double>());
    for (double loss : entry.micro_losses)
      entry.loss += loss / static_cast<double>(entry.micro_losses.size());
    if (step.wants_norms) {
      entry.param_norm = root_of_squares(step.parameters);
      entry.update_norm = root_of_squares(step.updates);
    }
    record_.step(std::move(entry));
    unread_.pop_front();
  }
}

void Recording::begin() {
  if (!std::exchange(begun_, true)) start_ = std::chrono::steady_clock::now();
}

void Recording::model_prepared(const torch::nn::Module& module) {
  if (init_.empty()) init_ = digest_of_parameters(module);
  batch_norm_ = batch_norm_ || has_batch_norm(module);
  dropout_ = dropout_ || has_dropout(module);
}

void Recording::backward(const at::Tensor& loss, const detail::LoaderCore* loader) {
  begin();
  read(Which::those_that_exist);
  Since& since = pending_;
  int64_t batch = loader ? loader->delivered : -1;
  bool same_micro_batch = !since.losses.empty() && since.scope == scopes_entered_ && since.batch == batch;
  at::Tensor value = loss.detach();
  if (same_micro_batch)
    since.losses.back() = since.losses.back().add(value);
  else
    since.losses.push_back(value.clone());
  if (loader && loader->in_hand && (since.batch != batch || !same_micro_batch)) {
    since.samples += static_cast<int64_t>(loader->in_hand->indices.size());
    for (int64_t index : loader->in_hand->indices) since.order += index_hash(index);
    training_loader_ = loader;
  }
  since.scope = scopes_entered_;
  since.batch = batch;
}

void Recording::count_tokens(int64_t n) { pending_.tokens = pending_.tokens.value_or(0) + n; }

Recording::OfOptimizer& Recording::of(const detail::PreparedOptimizerState& optimizer) {
  if (optimizers_.size() <= static_cast<size_t>(optimizer.number)) optimizers_.resize(optimizer.number + 1);
  return optimizers_[optimizer.number];
}

void Recording::before_clip(const std::vector<at::Tensor>& parameters, const at::Tensor& total) {
  for (const auto& optimizer : detail::held(state_.optimizers)) {
    OfOptimizer& mine = of(*optimizer);
    if (mine.grad_norm.defined()) continue;
    auto own = detail::parameters_of(optimizer->optimizer);
    mine.grad_norm = same_tensors(own, parameters) ? total : gradient_norm(own, 2.0);
  }
}

bool Recording::wants_norms(const OfOptimizer& mine) const {
  return mine.steps == 0 || (mine.steps + 1) % every_ == 0;
}

void Recording::before_step(detail::PreparedOptimizerState& optimizer) {
  OfOptimizer& mine = of(optimizer);
  mine.lr = optimizer.optimizer.lr();
  auto parameters = detail::parameters_of(optimizer.optimizer);
  if (!mine.grad_norm.defined()) mine.grad_norm = gradient_norm(parameters, 2.0);
  // On xla in every step: a step with norms and one without would be two programs.
  if (wants_norms(mine) || state_.tracing)
    for (const at::Tensor& parameter : parameters) mine.before.push_back(parameter.detach().clone());
}

void Recording::after_step(detail::PreparedOptimizerState& optimizer) {
  OfOptimizer& mine = of(optimizer);
  if (!std::exchange(facts_written_, true)) record_.facts(facts(optimizer));
  // Two optimizers may step on one backward: then both lines tell of it.
  if (!pending_.losses.empty()) current_ = std::exchange(pending_, {});
  Unread& step = unread_.emplace_back();
  step.wants_norms = wants_norms(mine);
  step.grad_norm = std::exchange(mine.grad_norm, {});
  step.losses = current_.losses;
  record::StepEntry& entry = step.entry;
  entry.optimizer = optimizer.number;
  entry.step = ++mine.steps;
  entry.samples = current_.samples;
  entry.order = current_.order;
  entry.tokens = current_.tokens;
  entry.lr = mine.lr;
  entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (!mine.before.empty()) {
    auto parameters = detail::parameters_of(optimizer.optimizer);
    step.parameters = norms_of(parameters);
    for (size_t i = 0; i < parameters.size(); ++i) mine.before[i].sub_(parameters[i].detach());
    step.updates = norms_of(std::exchange(mine.before, {}));
  }
  read(Which::those_that_exist);
}

record::Facts Recording::facts(const detail::PreparedOptimizerState& optimizer) const {
  record::Facts facts;
  if (auto seed = last_seed()) facts.seed = static_cast<int64_t>(*seed);
  facts.device = state_.tracing                     ? "xla:" + xla::device_client()->platform()
                 : state_.settings.device.is_cuda() ? "cuda"
                                                    : "cpu";
  facts.workers = facts.host_processes = state_.facts.num_processes;
  facts.accumulation = state_.settings.accumulation;
  facts.precision = name(state_.settings.precision);
  for (const auto& loader : detail::held(state_.loaders)) {
    if (loader.get() != training_loader_) continue;
    facts.sampler = loader->sampler_name();
    facts.split_batches = loader->shard.split_batches;
    if (!loader->options.batch_sampler || loader->options.batch_sampler->batch_size()) {
      facts.per_worker_batch = loader->shard.batch_size;
      facts.observed_batch = global_batch_size(loader->shard) * facts.accumulation;
    }
    if (loader->first_order.defined()) {
      Sha256 digest;
      at::Tensor order = loader->first_order.contiguous();
      digest.add(order.const_data_ptr(), order.nbytes());
      facts.order = digest.hex16();
    }
  }
  auto description = optimizer.optimizer.description();
  for (auto& [key, value] : description.values)
    if (key == "lr") value = optimizer.optimizer.impl()->initial_lr(0);  // not what a warm-up makes of it
  facts.optimizer = record::OptimizerFacts{description.name, description.values};
  for (const auto& prepared : detail::held(state_.schedules)) {
    if (prepared->schedule.optimizer() && prepared->schedule.optimizer() != optimizer.optimizer.impl())
      continue;
    bool with_optimizer = state_.options.step_scheduler_with_optimizer;
    int64_t per_update =
        state_.options.sharing.split_batches || !with_optimizer ? 1 : state_.facts.num_processes;
    auto schedule = prepared->schedule.description();
    facts.scheduler = record::SchedulerFacts{schedule.name, schedule.total, per_update};
    break;
  }
  if (!init_.empty()) facts.init = init_;
  facts.batch_norm = batch_norm_;
  facts.dropout = dropout_;
  facts.versions = {{"ivme", version()}, {"torch", TORCH_VERSION}};
  facts.command = command_line();
  facts.environment = relevant_environment();
  return facts;
}

}  // namespace ivme
