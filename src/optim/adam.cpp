#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/maximum.h>

#include <array>
#include <cmath>

#include "ivme/optim.h"
#include "optim/number.h"
#include "optim/parameter_groups.h"

namespace ivme::optim {
namespace {

// Python's step, exp_avg, exp_avg_sq, max_exp_avg_sq. The tensors are undefined before the first update.
struct Moments {
  int64_t steps = 0;
  at::Tensor mean, square, max_square;

  std::array<std::pair<const char*, at::Tensor>, 3> tensors() const {
    return {{{"exp_avg", mean}, {"exp_avg_sq", square}, {"max_exp_avg_sq", max_square}}};
  }
};

enum class Decay { added_to_gradient, decoupled };

template <class Options, Decay decay>
class AdamImpl : public GroupedOptimizer<Options, Moments> {
  using Base = GroupedOptimizer<Options, Moments>;
  static constexpr const char* name = decay == Decay::decoupled ? "AdamW" : "Adam";

 public:
  template <class Given>
  explicit AdamImpl(std::vector<Given> groups) : Base(name, std::move(groups)) {
    for (const auto& group : this->groups_) {
      const Options& o = group.options;
      check_option(o.lr >= 0, name, "lr", o.lr, "0 or more");
      check_option(o.eps >= 0, name, "eps", o.eps, "0 or more");
      for (size_t i = 0; i < 2; ++i)
        check_option(o.betas[i] >= 0 && o.betas[i] < 1, name, "betas[" + std::to_string(i) + "]", o.betas[i],
                     "at least 0 and below 1");
      check_option(o.weight_decay >= 0, name, "weight_decay", o.weight_decay, "0 or more");
      for (const at::Tensor& parameter : group.parameters)
        if (parameter.is_complex())
          throw Error(std::string(name) +
                      " was given a complex parameter. It updates real numbers. "
                      "Pass torch::view_as_real() of it.");
    }
  }

  void step() override {
    // No autograd bookkeeping; the version of a changed parameter is bumped by hand.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (auto& group : this->groups_) {
      if (group.parameters.empty()) continue;
      Factors factors(group.options, group.parameters[0]);
      for (size_t i = 0; i < group.parameters.size(); ++i)
        update(group.parameters[i], group.options, factors, group.states[i]);
    }
  }

  std::function<void()> host_part() override {
    std::vector<int64_t*> counts;
    for (auto& group : this->groups_)
      for (size_t i = 0; i < group.parameters.size(); ++i)
        if (group.parameters[i].grad().defined()) counts.push_back(&group.states[i].steps);
    return [counts] {
      for (int64_t* count : counts) ++*count;
    };
  }

  void create_state() override {
    for (auto& group : this->groups_)
      for (size_t i = 0; i < group.parameters.size(); ++i)
        if (!group.states[i].mean.defined()) create(group.states[i], group.parameters[i], group.options);
  }

  Description description() const override {
    const Options& o = this->groups_[0].options;
    return {name,
            {{"lr", o.lr},
             {"beta1", o.betas[0]},
             {"beta2", o.betas[1]},
             {"eps", o.eps},
             {"weight_decay", o.weight_decay},
             {"amsgrad", o.amsgrad},
             {"maximize", o.maximize}}};
  }

 private:
  // The numbers of one step that the parameters of a group share, all computed in double.
  struct Factors {
    Factors(const Options& options, const at::Tensor& parameter)
        : o(options),
          keep(Number::beside(parameter, [&o = o] { return 1 - o.lr * o.weight_decay; })),
          beta2(o.betas[1]),
          eps(o.eps) {}

    // The bias corrections after so many steps: parameters nearly always agree on it.
    void correct_for(const int64_t& count, const at::Tensor& parameter) {
      if (count == steps) return;
      steps = count;
      minus_step_size = Number::beside(parameter, [&o = o, &count] {
        return -(o.lr / (1 - std::pow(o.betas[0], static_cast<double>(count))));
      });
      root = Number::beside(parameter, [&o = o, &count] {
        return std::pow(1 - std::pow(o.betas[1], static_cast<double>(count)), 0.5);
      });
    }

    const Options& o;
    Number keep, beta2, eps;
    int64_t steps = 0;
    Number minus_step_size, root;
  };

  static void create(Moments& state, const at::Tensor& parameter, const Options& o) {
    state.mean = zeros_beside(parameter);
    state.square = zeros_beside(parameter);
    if (o.amsgrad) state.max_square = zeros_beside(parameter);
  }

  // Python's _single_tensor_adam.
  static void update(const at::Tensor& parameter, const Options& o, Factors& factors, Moments& state) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) return;
    if (gradient.is_sparse()) throw_sparse_gradient(name);
    if (!state.mean.defined()) create(state, parameter, o);
    ++state.steps;
    factors.correct_for(state.steps, parameter);

    if (o.maximize) gradient = gradient.neg();
    if (o.weight_decay != 0) {
      if (decay == Decay::decoupled) {
        parameter.mul_(factors.keep.of(parameter));
      } else {
        gradient = gradient.add(parameter, o.weight_decay);
      }
    }
    state.mean.lerp_(gradient, 1 - o.betas[0]);
    state.square.mul_(factors.beta2.of(parameter)).addcmul_(gradient, gradient, 1 - o.betas[1]);
    if (o.amsgrad) at::maximum_out(state.max_square, state.max_square, state.square);
    at::Tensor denominator = (o.amsgrad ? state.max_square : state.square).sqrt();
    denominator.div_(factors.root.of(parameter)).add_(factors.eps.of(parameter));
    parameter.addcdiv_(state.mean, denominator, factors.minus_step_size.scalar());
    parameter.unsafeGetTensorImpl()->bump_version();
  }
};

using CoupledAdam = AdamImpl<AdamOptions, Decay::added_to_gradient>;
using DecoupledAdam = AdamImpl<AdamWOptions, Decay::decoupled>;

}  // namespace

Adam::Adam(std::vector<AdamGroup> groups) : Optimizer(std::make_shared<CoupledAdam>(std::move(groups))) {}
Adam::Adam(std::vector<at::Tensor> parameters, AdamOptions options)
    : Adam(std::vector<AdamGroup>{{std::move(parameters), options}}) {}

AdamW::AdamW(std::vector<AdamWGroup> groups)
    : Optimizer(std::make_shared<DecoupledAdam>(std::move(groups))) {}
AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions options)
    : AdamW(std::vector<AdamWGroup>{{std::move(parameters), options}}) {}

}  // namespace ivme::optim
