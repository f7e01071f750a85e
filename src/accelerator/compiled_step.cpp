#include "ivme/compiled_step.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <bit>
#include <cstdio>
#include <unordered_set>

#include "accelerator/state.h"
#include "xla/replay/replay.h"
#include "xla/step.h"

namespace ivme::detail {
namespace {

constexpr int most_changes = 3;
constexpr size_t most_specializations = 64;

// Power-of-two calls, and every 257th: a prime, so that nothing that happens every so many calls is missed
// for ever.
bool is_compared(int64_t call) {
  return call >= 4 && (std::has_single_bit(static_cast<uint64_t>(call)) || call % 257 == 0);
}

std::string text_of(const std::source_location& where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

template <class T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_form(std::string& text, const at::Tensor& tensor) {
  append(text, tensor.defined());
  if (!tensor.defined()) return;
  append(text, tensor.scalar_type());
  append(text, tensor.requires_grad());
  append(text, tensor.dim());
  for (int64_t size : tensor.sizes()) append(text, size);
  for (int64_t stride : tensor.strides()) append(text, stride);
  append(text, tensor.storage_offset());
  append(text, tensor.storage().nbytes());
}

void append_first_with_this_memory(std::string& text, const std::vector<at::Tensor>& tensors, size_t i) {
  size_t first = 0;
  while (first < i &&
         !(tensors[first].defined() && tensors[i].defined() && tensors[first].is_alias_of(tensors[i])))
    ++first;
  append(text, first);
}

// What decides beside the arguments what a step records: a call with other facts is another specialization.
class Host {
 public:
  explicit Host(std::shared_ptr<AcceleratorState> accelerator) : accelerator_(std::move(accelerator)) {}

  void append_facts(std::string& text) {
    // What is prepared anew is another one.
    append(text, accelerator_->models.size());
    append(text, accelerator_->optimizers.size());
    append(text, accelerator_->schedules.size());
    append(text, accelerator_->tracing->position);  // random numbers drawn before the call
    append(text, c10::GradMode::is_enabled());
    append(text, at::autocast::is_autocast_enabled(at::kXLA));
    if (accelerator_->settings.accumulation > 1)
      append(text, accelerator_->sync.open_scopes > 0 ? accelerator_->sync.sync
                                                      : accelerator_->ends_the_accumulation());
    // A padded batch has a mask of its own, which the step may ask its loader for.
    if (const LoaderCore* loader = accelerator_->active->top(); loader && loader->in_hand)
      append(text, samples_in_hand(*loader));
    for (const auto& module : modules_) text += module->is_training() ? 't' : 'e';
    for (const at::Tensor& parameter : parameters_) {
      append(text, parameter.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
      text += static_cast<char>('0' + parameter.requires_grad() + 2 * parameter.grad().defined());
    }
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Of each group of the prepared optimizers.
  std::vector<double> learning_rates() const {
    std::vector<double> rates;
    for (const auto& optimizer : held(accelerator_->optimizers))
      for (size_t group = 0; group < optimizer->optimizer.num_groups(); ++group)
        rates.push_back(optimizer->optimizer.lr(group));
    return rates;
  }

  // Looks at the prepared models and optimizers again.
  void refresh() {
    modules_.clear();
    parameters_.clear();
    std::unordered_set<const void*> seen;
    auto add = [&](const at::Tensor& parameter) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters_.push_back(parameter);
    };
    for (const auto& model : held(accelerator_->models)) {
      for (const auto& module : model->module->modules()) modules_.push_back(module);
      for (const at::Tensor& parameter : model->module->parameters()) add(parameter);
    }
    for (const auto& optimizer : held(accelerator_->optimizers))
      for (const at::Tensor& parameter : parameters_of(optimizer->optimizer)) add(parameter);
  }

 private:
  std::shared_ptr<AcceleratorState> accelerator_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<at::Tensor> parameters_;
};

// Calls that are alike in all that can be seen from outside.
struct Specialization {
  size_t number = 0;
  int64_t calls = 0;
  int same = 0;     // calls in a row that recorded the same
  int changes = 0;  // how often a call recorded something else
  bool is_ready = false, is_given_up = false;
  bool compares = false;  // the call that is being recorded, with those that were replayed
  bool comparison_is_due = false;
  std::optional<xla::CapturedStep> step;
  std::string others;  // what it returns besides tensors
};

}  // namespace

struct StepReplay::Impl {
  std::shared_ptr<AcceleratorState> accelerator;
  CompileOptions options;
  std::string where;
  Host host;
  std::unordered_map<std::string, Specialization> specializations = {};
  Specialization* now = nullptr;
  std::vector<at::Tensor> arguments = {};
  std::vector<double> learning_rates = {};  // before the call
  size_t prepared = 0;                      // objects, when the host was last looked at
  std::unique_ptr<xla::Capture> capture = {};
  bool told = false;

  void look_at_host();
  void find(std::string key);
  bool wants_replay();
  void judge(xla::CapturedStep step, const std::string& others);
  void give_up(const std::string& why);
};

StepReplay::StepReplay(std::shared_ptr<AcceleratorState> accelerator, CompileOptions options,
                       std::source_location where)
    : impl_(std::make_unique<Impl>(Impl{accelerator, options, text_of(where), Host(accelerator)})) {
  if (options.traced_calls < 3)
    throw Error("compile was asked to replay a step after " + std::to_string(options.traced_calls) +
                " recorded calls. It takes at least 3 to see what changes from call to call.");
}

StepReplay::~StepReplay() = default;

void StepReplay::place(at::Tensor& argument) const {
  if (argument.defined() && argument.device().is_cpu())
    argument = argument.to(impl_->accelerator->settings.device);
  if (argument.defined() && !argument.device().is_xla())
    throw Error("The step compiled at " + impl_->where + " was called with a tensor on " +
                argument.device().str() + ". Pass tensors on xla or on the CPU.");
}

void StepReplay::Impl::look_at_host() {
  const size_t objects = accelerator->models.size() + accelerator->optimizers.size();
  if (std::exchange(prepared, objects) != objects) host.refresh();
}

// Calls that are all told apart, by a count among the arguments say, share the last one, which is given up.
void StepReplay::Impl::find(std::string key) {
  if (specializations.size() >= most_specializations && !specializations.count(key)) key.clear();
  auto [found, is_new] = specializations.try_emplace(std::move(key));
  now = &found->second;
  if (is_new) now->number = specializations.size();
  if (found->first.empty() && !now->is_given_up)
    give_up("its arguments, and what else tells calls apart, have had " +
            std::to_string(most_specializations) +
            " different forms. A number that changes is no argument but an ivme::host_scalar");
}

bool StepReplay::Impl::wants_replay() {
  if (!now->is_ready || now->is_given_up) return false;
  now->comparison_is_due = now->comparison_is_due || is_compared(now->calls);
  now->compares = now->comparison_is_due && !xla::shares_inputs(*now->step, arguments);
  if (now->compares) now->comparison_is_due = false;
  return !now->compares;
}

std::optional<std::vector<at::Tensor>> StepReplay::replay(std::vector<at::Tensor> tensors,
                                                          std::string plain) {
  const auto& context = impl_->accelerator->tracing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    append_form(plain, tensors[i]);
    append_first_with_this_memory(plain, tensors, i);
    if (tensors[i].defined() && !xla::has_context(tensors[i]))
      xla::adopt(tensors[i], context, "argument " + std::to_string(i + 1));
  }
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  impl_->arguments = std::move(tensors);
  xla::flush(context);
  impl_->look_at_host();
  impl_->host.append_facts(plain);
  impl_->find(std::move(plain));
  ++impl_->now->calls;
  if (!impl_->wants_replay()) return std::nullopt;
  auto results = xla::replay(*impl_->now->step, *context, impl_->arguments, impl_->host.parameters());
  if (!results) return std::nullopt;
  impl_->now->changes = 0;
  for (const at::Tensor& parameter : impl_->host.parameters())
    parameter.unsafeGetTensorImpl()->bump_version();
  return results;
}

size_t StepReplay::specialization() const { return impl_->now->number; }

void StepReplay::begin() {
  Specialization& now = *impl_->now;
  if (impl_->accelerator->recording && !now.is_given_up)
    impl_->give_up("a run record is kept, which needs its code in every call");
  if (now.is_given_up) return;
  impl_->host.refresh();
  impl_->learning_rates = impl_->host.learning_rates();
  impl_->capture = std::make_unique<xla::Capture>(impl_->accelerator->tracing, impl_->arguments,
                                                  impl_->host.parameters(), now.step ? &*now.step : nullptr);
}

void StepReplay::end(const std::vector<at::Tensor*>& results, const std::string& others) {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (at::Tensor* result : results) {
    if (result->defined()) *result = result->detach();
    tensors.push_back(*result);
  }
  if (!impl_->capture) return xla::end_step(impl_->accelerator->tracing);
  if (impl_->host.learning_rates() != impl_->learning_rates && !impl_->capture->has_actions_of_schedules())
    impl_->capture->refuse("it changes a learning rate by other means than a prepared schedule");
  xla::CapturedStep step = impl_->capture->end(tensors);
  impl_->capture.reset();
  impl_->judge(std::move(step), others);
}

void StepReplay::abandon() { impl_->capture.reset(); }

void StepReplay::Impl::judge(xla::CapturedStep step, const std::string& others) {
  const bool compared = std::exchange(now->compares, false);
  const bool is_the_same = step.is_the_same_program && step.refusal.empty() && others == now->others;
  std::string why = !step.refusal.empty() ? step.refusal : step.difference;
  if (why.empty() && now->step && others != now->others) why = "it returns another value that is no tensor";
  if (compared && !is_the_same) {
    now->is_given_up = true;
    throw Error("The step compiled at " + where + " was replayed, but in call " + std::to_string(now->calls) +
                ", which was recorded to compare, " + why +
                ". The calls before may have computed with what is out of date.");
  }
  const bool goes_on = now->is_ready && is_the_same;
  if (step.refusal.empty())
    now->step = std::move(step);
  else
    now->step.reset();
  now->others = others;
  if (goes_on && why.empty()) return;
  if (why.empty()) {
    now->is_ready = ++now->same >= options.traced_calls;
    return;
  }
  now->same = now->step ? 1 : 0;
  now->is_ready = goes_on;
  if (++now->changes >= most_changes) give_up(why);
}

void StepReplay::Impl::give_up(const std::string& why) {
  now->is_given_up = true;
  now->step.reset();
  if (std::exchange(told, true)) return;
  std::fprintf(stderr, "ivme: the step compiled at %s is recorded in every call instead of replayed: %s.\n",
               where.c_str(), why.c_str());
}

}  // namespace ivme::detail
