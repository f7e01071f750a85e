#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ivme/error.h"
#include "ivme/optim.h"
#include "optim/named_state.h"

namespace ivme::optim {

// Throws for what no optimizer can take, and drops a parameter that a group lists twice.
// `optimizer` is its name, for the message.
void check_parameters(const std::string& optimizer, std::vector<std::vector<at::Tensor>*> groups);

// Throws "OPTIMIZER was given NAME = VALUE. It must be RANGE." unless `valid`.
void check_option(bool valid, const std::string& optimizer, const std::string& name, double value,
                  const std::string& range);

// Zeros like the tensor, on its device. On xla they are a value that exists, not one that the next program
// computes.
at::Tensor zeros_beside(const at::Tensor& tensor);

[[noreturn]] void throw_sparse_gradient(const std::string& optimizer);

// Parameters with their options and one State each; what the optimizers here have in common. A State has
// tensors(): pairs of name and tensor, which may be undefined.
template <class Options, class State>
class GroupedOptimizer : public OptimizerImpl, public NamedState {
 public:
  struct Group {
    std::vector<at::Tensor> parameters;
    Options options;
    std::vector<State> states;  // states[i] belongs to parameters[i]
  };

  size_t num_groups() const override { return groups_.size(); }
  const std::vector<at::Tensor>& parameters(size_t i) const override {
    return groups_[checked(i)].parameters;
  }
  double lr(size_t i) const override { return groups_[checked(i)].options.lr; }
  void set_lr(size_t i, double lr) override { groups_[checked(i)].options.lr = lr; }

  void for_each_state(const VisitState& visit) const override {
    for (const Group& group : groups_)
      for (size_t i = 0; i < group.parameters.size(); ++i)
        for (const auto& [name, tensor] : group.states[i].tensors())
          if (tensor.defined()) visit(group.parameters[i], name, tensor);
  }

 protected:
  template <class Given>
  GroupedOptimizer(const std::string& name, std::vector<Given> given) {
    std::vector<std::vector<at::Tensor>*> lists;
    for (Given& g : given) lists.push_back(&g.parameters);
    check_parameters(name, lists);
    for (Given& g : given) {
      std::vector<State> states(g.parameters.size());
      groups_.push_back({std::move(g.parameters), g.options, std::move(states)});
    }
  }

  std::vector<Group> groups_;

 private:
  size_t checked(size_t i) const {
    if (i >= groups_.size())
      throw Error("Parameter group " + std::to_string(i) + " was asked for. The optimizer has " +
                  std::to_string(groups_.size()) + ". Groups are counted from 0.");
    return i;
  }
};

}  // namespace ivme::optim
