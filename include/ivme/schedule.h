#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ivme/optim.h"

namespace torch::optim {
class LRScheduler;
}

// Learning-rate schedules, in double precision and with the operations of Python's
// torch.optim.lr_scheduler (2.13), so that every learning rate has Python's bits.
namespace ivme::optim {

struct ScheduleDescription {
  std::string name;              // the factory's: "cosine_with_warmup", ...; a wrapped one's class
  std::optional<int64_t> total;  // total_steps, where the schedule has one
};

// A schedule as the handle holds it. Not thread-safe.
class ScheduleImpl {
 public:
  ScheduleImpl() = default;
  ScheduleImpl(const ScheduleImpl&) = delete;
  ScheduleImpl& operator=(const ScheduleImpl&) = delete;
  virtual ~ScheduleImpl();
  virtual void step() = 0;
  virtual std::vector<double> last_lr() const = 0;
  virtual int64_t last_epoch() const = 0;
  virtual std::shared_ptr<OptimizerImpl> optimizer() const = 0;
  virtual ScheduleDescription description() const = 0;
};

// A cheap handle: copies are the same schedule. It keeps the optimizer it drives alive.
class Schedule {
 public:
  explicit Schedule(std::shared_ptr<ScheduleImpl> impl);

  // Moves one step on and sets the optimizer's learning rates. Call it after the optimizer's step().
  void step() { impl_->step(); }
  // Steps taken since construction: Python's last_epoch.
  int64_t last_epoch() const { return impl_->last_epoch(); }
  // What the schedule set last, per group: Python's get_last_lr().
  std::vector<double> last_lr() const { return impl_->last_lr(); }
  double lr(size_t group = 0) const;
  // The optimizer it drives; null for a wrapped torch scheduler, which does not tell.
  std::shared_ptr<OptimizerImpl> optimizer() const { return impl_->optimizer(); }
  // Stepping past it is allowed: linear_with_warmup stays at 0, the cosines rise again, as in Python.
  std::optional<int64_t> total_steps() const { return description().total; }
  ScheduleDescription description() const { return impl_->description(); }
  const std::shared_ptr<ScheduleImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<ScheduleImpl> impl_;
};

// Each factory sets the value of step 0 at once: with a warm-up, the first update runs with lr 0.
// base = the group's initial_lr(), e = last_epoch, W = warmup_steps, T = total_steps, all in calls of
// step(). ivme::Error for a total or step size below 1, a negative warm-up or milestone, a NaN.

// base * 1
Schedule constant(const Optimizer& optimizer);

struct ConstantWithWarmup {
  int64_t warmup_steps = 0;
};
// base * (e < W ? e / max(1, W) : 1)
Schedule constant_with_warmup(const Optimizer& optimizer, ConstantWithWarmup options);

struct LinearWithWarmup {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // required
};
// base * (e < W ? e / max(1, W) : max(0, (T - e) / max(1, T - W)))
Schedule linear_with_warmup(const Optimizer& optimizer, LinearWithWarmup options);

struct CosineWithWarmup {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // required
  double cycles = 0.5;      // 0.5: from base to 0 once
};
// base * (e < W ? e / max(1, W) : max(0, 0.5 * (1 + cos(pi * cycles * 2 * ((e - W) / max(1, T - W))))))
Schedule cosine_with_warmup(const Optimizer& optimizer, CosineWithWarmup options);

struct CosineAnnealing {
  int64_t total_steps = 0;  // required; Python's T_max
  double min_lr = 0;        // Python's eta_min
};
// CosineAnnealingLR in its recursive form, whose last bits differ from the closed one.
Schedule cosine_annealing(const Optimizer& optimizer, CosineAnnealing options);

struct StepDecay {
  int64_t step_size = 0;  // required
  double gamma = 0.1;
};
// StepLR: lr = lr * gamma whenever e is a multiple of step_size.
Schedule step_decay(const Optimizer& optimizer, StepDecay options);

struct MultiStep {
  std::vector<int64_t> milestones;  // in any order; one that stands n times counts n times
  double gamma = 0.1;
};
// MultiStepLR: lr = lr * gamma^n whenever e is a milestone.
Schedule multi_step(const Optimizer& optimizer, MultiStep options);

// LambdaLR: base * factor(e). Called with e = 0 at once, then in each step(), for every group.
Schedule lambda(const Optimizer& optimizer, std::function<double(int64_t)> factor);

// Any torch::optim scheduler behind the handle; the first form does not own it. torch's C++ schedulers do
// not count an initial step: their StepLR(n) lowers the rate in call n + 1, Python's and step_decay in call
// n.
Schedule wrap(torch::optim::LRScheduler& schedule);
Schedule wrap(std::shared_ptr<torch::optim::LRScheduler> schedule);

}  // namespace ivme::optim
