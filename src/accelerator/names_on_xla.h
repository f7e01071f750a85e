#pragma once
#include "ivme/optim.h"

namespace torch::nn {
class Module;
}

namespace ivme {
namespace xla {
struct Context;
}
namespace detail {

// The model's parameters and buffers, those on xla, belong to the recording, and are called "parameter
// fc1.weight", "buffer bn.running_mean" in messages. One that has several names: "parameter a.weight (also
// b.weight)".
void adopt_module(const torch::nn::Module& module, const std::shared_ptr<xla::Context>& tracing);
// The gradients and the optimizer's state of such parameters are called "gradient of parameter fc1.weight",
// "exp_avg of parameter fc1.weight".
void name_state(const optim::Optimizer& optimizer);

}  // namespace detail
}  // namespace ivme
