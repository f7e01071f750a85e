#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "ivme/ivme.h"

// What the tests of compiled steps share.
namespace ivme::replay_test {

namespace nn = torch::nn;

constexpr CompileOptions soon = {.traced_calls = 3};

// A small network with what a step may have: momentum or moments, batch norm's statistics, dropout.
struct Net : nn::Module {
  Net() : layers(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3)) {
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }
  nn::Sequential layers;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> state;  // parameters and buffers
  xla::Metrics metrics;           // of the steps from `counted` on
};

struct Options {
  int steps = 40;
  int counted = 5;
  bool compiled = true;
  int64_t accumulation = 1;
};

inline xla::Metrics operator-(xla::Metrics a, const xla::Metrics& b) {
  a.compiles -= b.compiles;
  a.programs -= b.programs;
  a.executions -= b.executions;
  a.replays -= b.replays;
  a.kept_bytes -= b.kept_bytes;
  return a;
}

// `make_step(accelerator, model, optimizer)` gives the step, a function of data and target.
template <class MakeOptimizer, class MakeStep>
Outcome train(const Options& options, MakeOptimizer make_optimizer, MakeStep make_step) {
  set_seed(3);
  Accelerator accelerator({.gradient_accumulation_steps = options.accumulation, .device = "xla"});
  auto net = std::make_shared<Net>();
  auto raw_optimizer = make_optimizer(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, raw_optimizer);
  auto step = make_step(accelerator, model, optimizer);
  auto compiled = accelerator.compile(step, soon);
  Outcome run;
  std::vector<at::Tensor> losses;
  xla::Metrics start;
  for (int i = 0; i < options.steps; ++i) {
    if (i == options.counted) start = xla::metrics();
    auto x = at::randn({16, 8}).to(accelerator.device());
    auto y = at::randint(3, {16}).to(accelerator.device());
    losses.push_back(options.compiled ? compiled(x, y) : step(x, y).detach());
    accelerator.end_step();
  }
  run.metrics = xla::metrics() - start;
  for (const auto& loss : losses) run.losses.push_back(loss.template item<double>());
  for (const auto& tensor : net->parameters()) run.state.push_back(tensor.detach().cpu());
  for (const auto& tensor : net->buffers()) run.state.push_back(tensor.cpu());
  return run;
}

template <class A, class M, class O>
auto plain_step(A& accelerator, M& model, O& optimizer) {
  return [&](const at::Tensor& x, const at::Tensor& y) {
    auto scope = accelerator.accumulate(model);
    optimizer.zero_grad();
    auto loss = nn::functional::cross_entropy(model(x), y);
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(model, 1.0);
    optimizer.step();
    return loss;
  };
}

inline const auto adamw = [](const auto& parameters) {
  return optim::AdamW(parameters, {.lr = 1e-2, .weight_decay = 0.1});
};

inline void expect_equal(const Outcome& run, const Outcome& expected) {
  EXPECT_EQ(run.losses, expected.losses);
  ASSERT_EQ(run.state.size(), expected.state.size());
  for (size_t i = 0; i < run.state.size(); ++i) EXPECT_TRUE(run.state[i].equal(expected.state[i])) << i;
}

// Both ways with this step; the replayed calls of the last 35 are counted, and the recorded ones have the
// same program.
template <class MakeOptimizer, class MakeStep>
Outcome expect_replays_to_equal_recording(MakeOptimizer make_optimizer, MakeStep make_step,
                                          Options options = {}) {
  Options recorded = options;
  recorded.compiled = false;
  Outcome expected = train(recorded, make_optimizer, make_step),
          run = train(options, make_optimizer, make_step);
  expect_equal(run, expected);
  EXPECT_EQ(run.metrics.executions, options.steps - options.counted);
  EXPECT_EQ(run.metrics.programs, 0);
  EXPECT_EQ(run.metrics.kept_bytes, expected.metrics.kept_bytes);
  EXPECT_EQ(expected.metrics.replays, 0);
  return run;
}

// What a test of a single step needs: w is trained to map x to y.
struct Line {
  Accelerator accelerator{{.device = "xla"}};
  nn::Linear net{4, 1};
  PreparedModel<nn::LinearImpl> model = accelerator.prepare(net);
  PreparedOptimizer optimizer = accelerator.prepare(optim::SGD(net->parameters(), {.lr = 0.01}));
  at::Tensor x = at::ones({2, 4}), y = at::zeros({2, 1});

  Line() {
    at::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(1);
  }
  at::Tensor update(const at::Tensor& data, const at::Tensor& factor) {
    optimizer.zero_grad();
    auto loss = (model(data) * factor).square().mean();
    accelerator.backward(loss);
    optimizer.step();
    return loss;
  }
};

inline double value(const at::Tensor& tensor) { return tensor.item<double>(); }

}  // namespace ivme::replay_test
