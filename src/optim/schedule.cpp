#include "ivme/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ivme/error.h"

namespace ivme::optim {
namespace {

constexpr double pi = std::numbers::pi;

// The learning rate of a group at step e, from its initial and its current one.
using Formula = std::function<double(int64_t e, double base, double current)>;

class FormulaSchedule : public ScheduleImpl {
 public:
  FormulaSchedule(const Optimizer& optimizer, ScheduleDescription description, Formula formula)
      : optimizer_(optimizer.impl()), description_(std::move(description)), formula_(std::move(formula)) {
    for (size_t g = 0; g < optimizer_->num_groups(); ++g) bases_.push_back(optimizer_->initial_lr(g));
    move_to(0);
  }

  void step() override { move_to(epoch_ + 1); }
  std::vector<double> last_lr() const override { return rates_; }
  int64_t last_epoch() const override { return epoch_; }
  std::shared_ptr<OptimizerImpl> optimizer() const override { return optimizer_; }
  ScheduleDescription description() const override { return description_; }

 private:
  void move_to(int64_t epoch) {
    std::vector<double> rates;
    for (size_t g = 0; g < bases_.size(); ++g) rates.push_back(formula_(epoch, bases_[g], optimizer_->lr(g)));
    for (size_t g = 0; g < bases_.size(); ++g) optimizer_->set_lr(g, rates[g]);
    rates_ = std::move(rates);
    epoch_ = epoch;
  }

  std::shared_ptr<OptimizerImpl> optimizer_;
  ScheduleDescription description_;
  Formula formula_;
  std::vector<double> bases_, rates_;
  int64_t epoch_ = 0;
};

Schedule make(const Optimizer& optimizer, const char* name, std::optional<int64_t> total, Formula formula) {
  return Schedule(
      std::make_shared<FormulaSchedule>(optimizer, ScheduleDescription{name, total}, std::move(formula)));
}

// Python's LambdaLR.
Schedule make_lambda(const Optimizer& optimizer, const char* name, std::optional<int64_t> total,
                     std::function<double(int64_t)> factor) {
  return make(optimizer, name, total,
              [factor = std::move(factor)](int64_t e, double base, double) { return base * factor(e); });
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

void at_least(int64_t least, int64_t value, const std::string& schedule, const std::string& name) {
  if (value >= least) return;
  throw Error(schedule + " was given " + name + " = " + std::to_string(value) + ". It must be " +
              std::to_string(least) + " or more. Count it in calls of the schedule's step().");
}

void is_number(double value, const std::string& schedule, const std::string& name) {
  if (std::isfinite(value)) return;
  throw Error(schedule + " was given " + name + " = " + std::to_string(value) +
              ". It must be a finite number. Choose such a value.");
}

}  // namespace

ScheduleImpl::~ScheduleImpl() = default;

Schedule::Schedule(std::shared_ptr<ScheduleImpl> impl) : impl_(std::move(impl)) {
  if (!impl_) throw Error("A schedule handle was asked for. There is no schedule behind it. Pass one.");
}

double Schedule::lr(size_t group) const {
  const std::vector<double> rates = last_lr();
  if (group >= rates.size())
    throw Error("The learning rate of group " + std::to_string(group) +
                " was asked for. The schedule drives " + std::to_string(rates.size()) +
                ". Groups are counted from 0.");
  return rates[group];
}

Schedule constant(const Optimizer& optimizer) {
  return make_lambda(optimizer, "constant", std::nullopt, [](int64_t) { return 1.0; });
}

Schedule constant_with_warmup(const Optimizer& optimizer, ConstantWithWarmup options) {
  at_least(0, options.warmup_steps, "constant_with_warmup", "warmup_steps");
  return make_lambda(optimizer, "constant_with_warmup", std::nullopt,
                     [W = options.warmup_steps](int64_t e) { return e < W ? ratio(e, W) : 1.0; });
}

Schedule linear_with_warmup(const Optimizer& optimizer, LinearWithWarmup options) {
  at_least(0, options.warmup_steps, "linear_with_warmup", "warmup_steps");
  at_least(1, options.total_steps, "linear_with_warmup", "total_steps");
  return make_lambda(optimizer, "linear_with_warmup", options.total_steps,
                     [W = options.warmup_steps, T = options.total_steps](int64_t e) {
                       return e < W ? ratio(e, W) : std::max(0.0, ratio(T - e, T - W));
                     });
}

Schedule cosine_with_warmup(const Optimizer& optimizer, CosineWithWarmup options) {
  at_least(0, options.warmup_steps, "cosine_with_warmup", "warmup_steps");
  at_least(1, options.total_steps, "cosine_with_warmup", "total_steps");
  is_number(options.cycles, "cosine_with_warmup", "cycles");
  return make_lambda(optimizer, "cosine_with_warmup", options.total_steps,
                     [W = options.warmup_steps, T = options.total_steps, cycles = options.cycles](int64_t e) {
                       if (e < W) return ratio(e, W);
                       return std::max(0.0, 0.5 * (1 + std::cos(pi * cycles * 2 * ratio(e - W, T - W))));
                     });
}

Schedule cosine_annealing(const Optimizer& optimizer, CosineAnnealing options) {
  at_least(1, options.total_steps, "cosine_annealing", "total_steps");
  is_number(options.min_lr, "cosine_annealing", "min_lr");
  return make(optimizer, "cosine_annealing", options.total_steps,
              [T = options.total_steps, least = options.min_lr](int64_t e, double base, double current) {
                const double period = static_cast<double>(T), now = static_cast<double>(e);
                if (e == 0) return current;
                // Just after the minimum the quotient below would be 0 / 0.
                if ((e - 1 - T) % (2 * T) == 0)
                  return current + (base - least) * (1 - std::cos(pi / period)) / 2;
                return (1 + std::cos(pi * now / period)) / (1 + std::cos(pi * (now - 1) / period)) *
                           (current - least) +
                       least;
              });
}

Schedule step_decay(const Optimizer& optimizer, StepDecay options) {
  at_least(1, options.step_size, "step_decay", "step_size");
  is_number(options.gamma, "step_decay", "gamma");
  return make(optimizer, "step_decay", std::nullopt,
              [size = options.step_size, gamma = options.gamma](int64_t e, double, double current) {
                return e == 0 || e % size != 0 ? current : current * gamma;
              });
}

Schedule multi_step(const Optimizer& optimizer, MultiStep options) {
  for (int64_t milestone : options.milestones) at_least(0, milestone, "multi_step", "a milestone");
  is_number(options.gamma, "multi_step", "gamma");
  return make(
      optimizer, "multi_step", std::nullopt,
      [milestones = std::move(options.milestones), gamma = options.gamma](int64_t e, double, double current) {
        const auto times = std::count(milestones.begin(), milestones.end(), e);
        return times == 0 ? current : current * std::pow(gamma, static_cast<double>(times));
      });
}

Schedule lambda(const Optimizer& optimizer, std::function<double(int64_t)> factor) {
  if (!factor)
    throw Error("lambda was asked for a schedule. The function is empty. Pass one that takes the step.");
  return make_lambda(optimizer, "lambda", std::nullopt, std::move(factor));
}

}  // namespace ivme::optim
