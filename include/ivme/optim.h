#pragma once
#include <ATen/core/TensorBody.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

// Optimizers that compute, operation for operation, what Python's torch.optim (2.13) computes on
// CPU with its defaults, and a handle that makes any torch::optim optimizer one of them.
namespace ivme::optim {

// What an optimizer or its run record says of itself: Python's class name ("SGD", "AdamW") and the
// hyper-parameters of group 0 under Python's names, in Python's order; true is 1, false is 0, betas
// are "beta1", "beta2".
struct Description {
  std::string name;
  std::vector<std::pair<std::string, double>> values;
};

// What a schedule, a prepared optimizer and clipping need of any optimizer. Not thread-safe.
class OptimizerImpl {
 public:
  OptimizerImpl() = default;
  OptimizerImpl(const OptimizerImpl&) = delete;
  OptimizerImpl& operator=(const OptimizerImpl&) = delete;
  virtual ~OptimizerImpl();

  // One update of every parameter that has a gradient; a parameter without one is left alone, and
  // its own count of steps too. Runs without autograd. Sparse gradients: ivme::Error.
  virtual void step() = 0;

  virtual size_t num_groups() const = 0;
  // The parameters of a group in the order given. Valid until groups are added or the optimizer ends.
  virtual const std::vector<at::Tensor>& parameters(size_t group) const = 0;
  virtual double lr(size_t group) const = 0;
  virtual void set_lr(size_t group, double lr) = 0;
  virtual Description description() const = 0;
  // Makes the state (momentum, moments) as zeros beside the parameters where a first step from zeros is the
  // first step without; then all steps are alike. Does nothing where that is not so, and for state that
  // exists.
  virtual void create_state() {}
  // What the last step() did besides changing tensors, such as counting steps: what a replayed step
  // (ivme/compiled_step.h) does in its place. Valid while the optimizer is. Null where that is not known:
  // such an optimizer cannot be replayed.
  virtual std::function<void()> host_part() { return nullptr; }

  // Drops the gradients, or fills them with 0. Works on gradients that are views of all-reduce buckets.
  void zero_grad(bool set_to_none = true);

  // The learning rate of a group when this was first asked: what schedules scale. It is asked when the
  // first schedule is built, and later schedules get the same number (Python's group["initial_lr"]).
  double initial_lr(size_t group);

 private:
  std::vector<std::optional<double>> initial_lrs_;
};

// A cheap handle: copies are the same optimizer. Construct an SGD, Adam or AdamW, or wrap() another.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<OptimizerImpl> impl);

  void step() { impl_->step(); }
  void zero_grad(bool set_to_none = true) { impl_->zero_grad(set_to_none); }
  size_t num_groups() const { return impl_->num_groups(); }
  double lr(size_t group = 0) const { return impl_->lr(group); }
  void set_lr(double lr);  // of every group
  void set_lr(size_t group, double lr) { impl_->set_lr(group, lr); }
  Description description() const { return impl_->description(); }
  const std::shared_ptr<OptimizerImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<OptimizerImpl> impl_;
};

// Constructors below throw ivme::Error when there is no parameter, when a parameter is undefined or not
// a leaf, when one parameter stands in two groups, and for hyper-parameters outside their range.
// A parameter listed twice in one group (tied weights) counts once; Python would update it twice.
// Parameters keep their storage: they are updated in place, in float64, float32, bfloat16 or float16.

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2: added to the gradient
  bool nesterov = false;    // needs momentum > 0 and dampening 0
  bool maximize = false;
};
struct SGDGroup {
  std::vector<at::Tensor> parameters;
  SGDOptions options = {};
};
// torch.optim.SGD: the first momentum buffer is the first gradient (no dampening).
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<at::Tensor> parameters, SGDOptions options = {});
  explicit SGD(std::vector<SGDGroup> groups);
};

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // L2: added to the gradient
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamGroup {
  std::vector<at::Tensor> parameters;
  AdamOptions options = {};
};
// torch.optim.Adam.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<at::Tensor> parameters, AdamOptions options = {});
  explicit Adam(std::vector<AdamGroup> groups);
};

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: the parameter is first scaled by 1 - lr * weight_decay
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWGroup {
  std::vector<at::Tensor> parameters;
  AdamWOptions options = {};
};
// torch.optim.AdamW.
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<at::Tensor> parameters, AdamWOptions options = {});
  explicit AdamW(std::vector<AdamWGroup> groups);
};

// Any torch::optim optimizer behind the handle. The first form does not own it: it must outlive every
// copy of the handle. LBFGS, which needs a closure, is refused with an ivme::Error. parameters() are
// torch's own list, a parameter listed twice included. Each wrap() has its own initial_lr().
Optimizer wrap(torch::optim::Optimizer& optimizer);
Optimizer wrap(std::shared_ptr<torch::optim::Optimizer> optimizer);

}  // namespace ivme::optim
