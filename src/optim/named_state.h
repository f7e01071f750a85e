#pragma once
#include <ATen/core/TensorBody.h>

#include <functional>

namespace ivme::optim {

// `name`: in the words of its optimizer, "exp_avg". `state` is defined.
using VisitState =
    std::function<void(const at::Tensor& parameter, const char* name, const at::Tensor& state)>;

// An optimizer that can say what it keeps for each parameter.
class NamedState {
 public:
  virtual ~NamedState() = default;
  virtual void for_each_state(const VisitState& visit) const = 0;
};

}  // namespace ivme::optim
