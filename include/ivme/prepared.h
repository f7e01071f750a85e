#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ivme/optim.h"
#include "ivme/schedule.h"
#include "ivme/tensors.h"

// What Accelerator::prepare returns for a model, an optimizer and a schedule: cheap handles, used in the
// training loop as the raw object would be. They keep the accelerator's inner state alive. Not for use by
// several threads at once.
namespace ivme {

class Autocast;
class KeyedDropout;

namespace detail {
struct ModelRuntime;
struct PreparedOptimizerState;
struct PreparedScheduleState;

// One call of a prepared model's forward: on construction buffers are broadcast, the gradient all-reduce is
// made ready and autocast begins; finish ends autocast and turns half-precision outputs into float32.
class ForwardScope {
 public:
  explicit ForwardScope(ModelRuntime& runtime);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  void finish(const std::function<void(const TensorVisitor&)>& visit_outputs);

 private:
  ModelRuntime& runtime_;
  std::unique_ptr<Autocast> autocast_;
  std::unique_ptr<KeyedDropout> dropout_;
};
}  // namespace detail

// A model as every rank trains it: called like the module, with the same arguments and result.
// forward may return whatever visit_tensors (ivme/tensors.h) knows.
//
// Write model(x). `->` reaches the module itself, for train(), eval() and its members; model->forward(x)
// would go around the all-reduce and autocast, and Accelerator::backward throws when gradients come that way.
template <class Impl>
class PreparedModel {
 public:
  PreparedModel(std::shared_ptr<Impl> module, std::shared_ptr<detail::ModelRuntime> runtime)
      : module_(std::move(module)), runtime_(std::move(runtime)) {}

  template <class... Args>
  auto operator()(Args&&... args) {
    detail::ForwardScope scope(*runtime_);
    using Output = decltype(module_->forward(std::forward<Args>(args)...));
    if constexpr (std::is_void_v<Output>) {
      module_->forward(std::forward<Args>(args)...);
      scope.finish([](const TensorVisitor&) {});
    } else {
      std::decay_t<Output> output = module_->forward(std::forward<Args>(args)...);
      scope.finish([&](const TensorVisitor& visit) { visit_tensors(output, visit); });
      return output;
    }
  }
  template <class... Args>
  auto forward(Args&&... args) {
    return (*this)(std::forward<Args>(args)...);
  }

  Impl* operator->() const { return module_.get(); }
  Impl& operator*() const { return *module_; }
  std::shared_ptr<Impl> ptr() const { return module_; }  // the module itself, as it was given
  const std::shared_ptr<detail::ModelRuntime>& runtime() const { return runtime_; }

 private:
  std::shared_ptr<Impl> module_;
  std::shared_ptr<detail::ModelRuntime> runtime_;
};

// An optimizer that steps once per synchronised micro-batch: step() and zero_grad() on the others do nothing.
// Inside Accelerator::accumulate zero_grad() never drops gradients that no step has used yet, so it may stand
// before backward as well as after step.
class PreparedOptimizer {
 public:
  explicit PreparedOptimizer(std::shared_ptr<detail::PreparedOptimizerState> state)
      : state_(std::move(state)) {}

  void step();
  void zero_grad(bool set_to_none = true);
  double lr(size_t group = 0) const;
  void set_lr(double lr);
  bool step_was_skipped() const;  // by the gradient scaler in the last synchronised step
  optim::Optimizer unwrap() const;
  const std::shared_ptr<detail::PreparedOptimizerState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::PreparedOptimizerState> state_;
};

// A schedule in step with the optimizer: step() does nothing on micro-batches without an update, else moves
// num_processes steps on (one with split_batches), so that totals counted in single-process batches keep
// their meaning. With step_scheduler_with_optimizer off, each call is one plain step.
class PreparedSchedule {
 public:
  explicit PreparedSchedule(std::shared_ptr<detail::PreparedScheduleState> state)
      : state_(std::move(state)) {}

  void step();
  double lr(size_t group = 0) const;
  std::vector<double> last_lr() const;
  int64_t last_epoch() const;
  optim::Schedule unwrap() const;
  const std::shared_ptr<detail::PreparedScheduleState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::PreparedScheduleState> state_;
};

}  // namespace ivme
