#include "xla/trace/recurrent_formula.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd.h>

namespace ivme::xla {
namespace {

using at::Tensor;

struct State {
  Tensor h, c;
};

State step(RecurrentKind kind, const Tensor& input, const Tensor& hidden, const State& before) {
  switch (kind) {
    case RecurrentKind::lstm: {
      auto gates = (input + hidden).chunk(4, 1);
      Tensor c = at::sigmoid(gates[1]) * before.c + at::sigmoid(gates[0]) * at::tanh(gates[2]);
      return {at::sigmoid(gates[3]) * at::tanh(c), c};
    }
    case RecurrentKind::gru: {
      auto x = input.chunk(3, 1), h = hidden.chunk(3, 1);
      Tensor z = at::sigmoid(x[1] + h[1]), n = at::tanh(x[2] + at::sigmoid(x[0] + h[0]) * h[2]);
      return {(before.h - n) * z + n, {}};
    }
    case RecurrentKind::rnn_tanh:
      return {at::tanh(input + hidden), {}};
    case RecurrentKind::rnn_relu:
      break;
  }
  return {at::relu(input + hidden), {}};
}

// h of all positions, the last h, the last c.
std::vector<Tensor> unrolled(RecurrentKind kind, bool reverse, const std::vector<Tensor>& inputs) {
  const Tensor &projection = inputs[0], &shrink = inputs[5], &valid = inputs[6];
  State state{inputs[1], inputs[2]};
  const int64_t positions = projection.size(0);
  std::vector<Tensor> all(static_cast<size_t>(positions));
  for (int64_t pass = 0; pass < positions; ++pass) {
    const int64_t t = reverse ? positions - 1 - pass : pass;
    State after = step(kind, projection.select(0, t), at::linear(state.h, inputs[3], inputs[4]), state);
    if (shrink.defined()) after.h = at::linear(after.h, shrink);
    if (valid.defined()) {
      const Tensor here = valid.select(0, t).unsqueeze(1);
      after.h = at::where(here, after.h, state.h);
      if (after.c.defined()) after.c = at::where(here, after.c, state.c);
    }
    state = after;
    all[static_cast<size_t>(t)] = state.h;
  }
  return {at::stack(all), state.h, state.c};
}

}  // namespace

std::vector<Tensor> differentiable_gradients(RecurrentKind kind, bool reverse,
                                             const std::vector<Tensor>& inputs,
                                             const std::vector<Tensor>& gradients) {
  // Aliases, since an input may depend on another one: only its own way counts here.
  std::vector<Tensor> own(inputs.begin(), inputs.begin() + 7), wanted;
  for (size_t i = 0; i < 6; ++i) {
    if (!own[i].defined() || !own[i].requires_grad()) continue;
    own[i] = own[i].view_as(own[i]);
    wanted.push_back(own[i]);
  }
  std::vector<Tensor> results = unrolled(kind, reverse, own), used, given;
  for (size_t i = 0; i < 3; ++i) {
    if (!gradients[i].defined()) continue;
    used.push_back(results[i]);
    given.push_back(gradients[i]);
  }
  if (used.empty()) return std::vector<Tensor>(6);
  auto found = torch::autograd::grad(used, wanted, given, /*retain_graph=*/true, /*create_graph=*/true,
                                     /*allow_unused=*/true);
  std::vector<Tensor> result(6);
  for (size_t i = 0, next = 0; i < 6; ++i)
    if (own[i].defined() && own[i].requires_grad()) result[i] = found[next++];
  return result;
}

}  // namespace ivme::xla
