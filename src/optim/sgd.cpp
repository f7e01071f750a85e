#include <ATen/core/LegacyTypeDispatch.h>

#include <array>

#include "ivme/optim.h"
#include "optim/number.h"
#include "optim/parameter_groups.h"

namespace ivme::optim {
namespace {

struct Momentum {
  at::Tensor buffer;  // undefined before the first update

  std::array<std::pair<const char*, at::Tensor>, 1> tensors() const {
    return {{{"momentum buffer", buffer}}};
  }
};

class SGDImpl : public GroupedOptimizer<SGDOptions, Momentum> {
 public:
  explicit SGDImpl(std::vector<SGDGroup> groups) : GroupedOptimizer("SGD", std::move(groups)) {
    for (const Group& group : groups_) {
      const SGDOptions& o = group.options;
      check_option(o.lr >= 0, "SGD", "lr", o.lr, "0 or more");
      check_option(o.momentum >= 0, "SGD", "momentum", o.momentum, "0 or more");
      check_option(o.weight_decay >= 0, "SGD", "weight_decay", o.weight_decay, "0 or more");
      check_option(!o.nesterov || o.momentum > 0, "SGD", "nesterov with momentum", o.momentum, "more than 0");
      check_option(!o.nesterov || o.dampening == 0, "SGD", "nesterov with dampening", o.dampening, "0");
    }
  }

  void step() override {
    // No autograd bookkeeping; the version of a changed parameter is bumped by hand.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (Group& group : groups_) {
      if (group.parameters.empty()) continue;
      const Number momentum(group.options.momentum);
      const auto minus_lr = Number::beside(group.parameters[0], [&o = group.options] { return -o.lr; });
      for (size_t i = 0; i < group.parameters.size(); ++i)
        update(group.parameters[i], group.options, momentum, minus_lr, group.states[i].buffer);
    }
  }

  std::function<void()> host_part() override {
    return [] {};
  }

  // With dampening the first step takes the whole gradient, later ones do not.
  void create_state() override {
    for (Group& group : groups_)
      for (size_t i = 0; i < group.parameters.size(); ++i)
        if (group.options.momentum != 0 && group.options.dampening == 0 && !group.states[i].buffer.defined())
          group.states[i].buffer = zeros_beside(group.parameters[i]);
  }

  Description description() const override {
    const SGDOptions& o = groups_[0].options;
    return {"SGD",
            {{"lr", o.lr},
             {"momentum", o.momentum},
             {"dampening", o.dampening},
             {"weight_decay", o.weight_decay},
             {"nesterov", o.nesterov},
             {"maximize", o.maximize}}};
  }

 private:
  // Python's _single_tensor_sgd.
  static void update(const at::Tensor& parameter, const SGDOptions& o, const Number& momentum,
                     const Number& minus_lr, at::Tensor& buffer) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) return;
    if (gradient.is_sparse()) throw_sparse_gradient("SGD");
    bool is_own = false;  // a temporary, which the buffer may keep
    if (o.maximize) {
      gradient = gradient.neg();
      is_own = true;
    }
    if (o.weight_decay != 0) {
      gradient = gradient.add(parameter, o.weight_decay);
      is_own = true;
    }
    if (o.momentum != 0) {
      if (buffer.defined()) {
        buffer.mul_(momentum.of(buffer)).add_(gradient, 1 - o.dampening);
      } else {
        buffer = is_own ? gradient : gradient.clone();
      }
      gradient = o.nesterov ? gradient.add(buffer, o.momentum) : buffer;
    }
    parameter.add_(gradient, minus_lr.scalar());
    parameter.unsafeGetTensorImpl()->bump_version();
  }
};

}  // namespace

SGD::SGD(std::vector<SGDGroup> groups) : Optimizer(std::make_shared<SGDImpl>(std::move(groups))) {}
SGD::SGD(std::vector<at::Tensor> parameters, SGDOptions options)
    : SGD(std::vector<SGDGroup>{{std::move(parameters), options}}) {}

}  // namespace ivme::optim
