#include <cxxabi.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>
#include <typeinfo>

#include "ivme/error.h"
#include "ivme/optim.h"
#include "ivme/schedule.h"
#include "optim/named_state.h"
#include "optim/torch_state.h"

namespace ivme::optim {
namespace {

// "SGD" of torch::optim::SGD: the class of the object itself, users' own classes included.
std::string class_name(const std::type_info& type) {
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  const std::string full = readable ? readable.get() : type.name();
  const size_t colon = full.rfind("::");
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

std::vector<std::pair<std::string, double>> hyper_parameters(const torch::optim::OptimizerOptions& options) {
  namespace optim = torch::optim;
  if (auto* o = dynamic_cast<const optim::SGDOptions*>(&options))
    return {{"lr", o->lr()},
            {"momentum", o->momentum()},
            {"dampening", o->dampening()},
            {"weight_decay", o->weight_decay()},
            {"nesterov", o->nesterov()}};
  const auto adam = [](const auto& o) -> std::vector<std::pair<std::string, double>> {
    return {{"lr", o.lr()},   {"beta1", std::get<0>(o.betas())},  {"beta2", std::get<1>(o.betas())},
            {"eps", o.eps()}, {"weight_decay", o.weight_decay()}, {"amsgrad", o.amsgrad()}};
  };
  if (auto* o = dynamic_cast<const optim::AdamOptions*>(&options)) return adam(*o);
  if (auto* o = dynamic_cast<const optim::AdamWOptions*>(&options)) return adam(*o);
  if (auto* o = dynamic_cast<const optim::RMSpropOptions*>(&options))
    return {{"lr", o->lr()},   {"momentum", o->momentum()}, {"alpha", o->alpha()},
            {"eps", o->eps()}, {"centered", o->centered()}, {"weight_decay", o->weight_decay()}};
  if (auto* o = dynamic_cast<const optim::AdagradOptions*>(&options))
    return {{"lr", o->lr()},
            {"lr_decay", o->lr_decay()},
            {"eps", o->eps()},
            {"weight_decay", o->weight_decay()},
            {"initial_accumulator_value", o->initial_accumulator_value()}};
  return {{"lr", options.get_lr()}};
}

using NamedTensors = std::vector<std::pair<const char*, at::Tensor>>;

// Of the optimizers of torch::optim; nothing of a user's own class.
NamedTensors tensors_of(torch::optim::OptimizerParamState& state) {
  namespace optim = torch::optim;
  const auto moments = [](auto& s) -> NamedTensors {
    return {{"exp_avg", s.exp_avg()}, {"exp_avg_sq", s.exp_avg_sq()}, {"max_exp_avg_sq", s.max_exp_avg_sq()}};
  };
  if (auto* s = dynamic_cast<optim::AdamParamState*>(&state)) return moments(*s);
  if (auto* s = dynamic_cast<optim::AdamWParamState*>(&state)) return moments(*s);
  if (auto* s = dynamic_cast<optim::SGDParamState*>(&state))
    return {{"momentum buffer", s->momentum_buffer()}};
  if (auto* s = dynamic_cast<optim::RMSpropParamState*>(&state))
    return {{"square_avg", s->square_avg()},
            {"momentum buffer", s->momentum_buffer()},
            {"grad_avg", s->grad_avg()}};
  if (auto* s = dynamic_cast<optim::AdagradParamState*>(&state)) return {{"sum", s->sum()}};
  return {};
}

class TorchOptimizer : public OptimizerImpl, public NamedState {
 public:
  explicit TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {
    if (!optimizer_)
      throw Error("wrap() was asked to wrap an optimizer. The pointer is null. Pass an optimizer.");
    if (dynamic_cast<torch::optim::LBFGS*>(optimizer_.get()))
      throw Error(
          "wrap() was given torch::optim::LBFGS. It evaluates the model again within a step, through a "
          "closure that a training loop here does not have. Choose another optimizer.");
  }

  void step() override { optimizer_->step(); }
  size_t num_groups() const override { return optimizer_->param_groups().size(); }
  const std::vector<at::Tensor>& parameters(size_t i) const override { return group(i).params(); }
  double lr(size_t i) const override { return group(i).options().get_lr(); }
  void set_lr(size_t i, double lr) override { group(i).options().set_lr(lr); }

  void for_each_state(const VisitState& visit) const override {
    for (const auto& each : optimizer_->param_groups()) {
      for (const at::Tensor& parameter : each.params()) {
        const auto state = optimizer_->state().find(parameter.unsafeGetTensorImpl());
        if (state == optimizer_->state().end()) continue;
        for (const auto& [name, tensor] : tensors_of(*state->second))
          if (tensor.defined()) visit(parameter, name, tensor);
      }
    }
  }

  void create_state() override {
    if (create_torch_state(*optimizer_) || std::exchange(told_, true)) return;
    std::fprintf(
        stderr,
        "ivme: %s is not known to ivme, so its state appears in the first step on xla and the second "
        "is another program. Make the state before prepare, or use an optimizer of ivme::optim.\n",
        description().name.c_str());
  }

  Description description() const override {
    const torch::optim::Optimizer& optimizer = *optimizer_;
    return {class_name(typeid(optimizer)), hyper_parameters(group(0).options())};
  }

 private:
  torch::optim::OptimizerParamGroup& group(size_t i) const {
    if (i >= num_groups())
      throw Error("Parameter group " + std::to_string(i) + " was asked for. The optimizer has " +
                  std::to_string(num_groups()) + ". Groups are counted from 0.");
    return optimizer_->param_groups()[i];
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  bool told_ = false;
};

// get_current_lrs() is protected, and the only way to learn what a torch scheduler set.
struct CurrentRates : torch::optim::LRScheduler {
  static std::vector<double> of(const torch::optim::LRScheduler& schedule) {
    constexpr auto rates = &CurrentRates::get_current_lrs;
    return (schedule.*rates)();
  }
};

class TorchSchedule : public ScheduleImpl {
 public:
  explicit TorchSchedule(std::shared_ptr<torch::optim::LRScheduler> schedule)
      : schedule_(std::move(schedule)) {
    if (!schedule_) throw Error("wrap() was asked to wrap a schedule. The pointer is null. Pass a schedule.");
  }

  void step() override {
    schedule_->step();
    ++steps_;
  }
  std::vector<double> last_lr() const override { return CurrentRates::of(*schedule_); }
  int64_t last_epoch() const override { return steps_; }
  std::shared_ptr<OptimizerImpl> optimizer() const override { return nullptr; }
  ScheduleDescription description() const override {
    const torch::optim::LRScheduler& schedule = *schedule_;
    return {class_name(typeid(schedule)), std::nullopt};
  }

 private:
  std::shared_ptr<torch::optim::LRScheduler> schedule_;
  int64_t steps_ = 0;
};

// A pointer that does not own.
template <class T>
std::shared_ptr<T> borrow(T& object) {
  return std::shared_ptr<T>(std::shared_ptr<T>(), &object);
}

}  // namespace

Optimizer wrap(std::shared_ptr<torch::optim::Optimizer> optimizer) {
  return Optimizer(std::make_shared<TorchOptimizer>(std::move(optimizer)));
}
Optimizer wrap(torch::optim::Optimizer& optimizer) { return wrap(borrow(optimizer)); }

Schedule wrap(std::shared_ptr<torch::optim::LRScheduler> schedule) {
  return Schedule(std::make_shared<TorchSchedule>(std::move(schedule)));
}
Schedule wrap(torch::optim::LRScheduler& schedule) { return wrap(borrow(schedule)); }

}  // namespace ivme::optim
