// The loop of the README on xla against the same loop on the CPU.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "ivme/ivme.h"

namespace ivme {
namespace {

namespace nn = torch::nn;

nn::Sequential make_mlp() {
  at::manual_seed(1);
  return nn::Sequential(nn::Linear(20, 32), nn::ReLU(), nn::Linear(32, 10));
}

double value(const at::Tensor& tensor) { return tensor.item<double>(); }

struct Run {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

template <class MakeOptimizer>
Run train(const std::string& device, int steps, MakeOptimizer make_optimizer) {
  Accelerator accelerator({.device = device});
  auto net = make_mlp();
  auto [model, optimizer] = accelerator.prepare(net, make_optimizer(net->parameters()));
  at::manual_seed(2);
  Run run;
  for (int step = 0; step < steps; ++step) {
    auto x = at::randn({16, 20}), y = at::randint(10, {16});
    auto loss = nn::functional::cross_entropy(model(x.to(accelerator.device())), y.to(accelerator.device()));
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    run.losses.push_back(value(loss));
  }
  for (const auto& parameter : net->parameters()) run.parameters.push_back(parameter.detach().cpu());
  return run;
}

template <class MakeOptimizer>
void expect_the_losses_of_the_cpu(MakeOptimizer make_optimizer) {
  auto eager = train("cpu", 20, make_optimizer);
  auto before = xla::metrics();
  auto traced = train("xla", 20, make_optimizer);
  auto after = xla::metrics();
  for (size_t i = 0; i < eager.losses.size(); ++i) EXPECT_NEAR(traced.losses[i], eager.losses[i], 1e-5) << i;
  for (size_t i = 0; i < eager.parameters.size(); ++i)
    EXPECT_LT(value(at::norm(traced.parameters[i] - eager.parameters[i])),
              1e-5 * value(at::norm(eager.parameters[i])));
  EXPECT_EQ(after.programs - before.programs, 1);
  EXPECT_EQ(after.executions - before.executions, 20);
}

TEST(XlaTraining, sgd_with_momentum) {
  expect_the_losses_of_the_cpu(
      [](const auto& parameters) { return optim::SGD(parameters, {.lr = 0.05, .momentum = 0.9}); });
}

TEST(XlaTraining, adamw) {
  expect_the_losses_of_the_cpu(
      [](const auto& parameters) { return optim::AdamW(parameters, {.lr = 1e-3, .weight_decay = 0.1}); });
}

}  // namespace
}  // namespace ivme
