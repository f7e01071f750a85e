// What a training loop on xla holds on the device.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <fstream>

#include "ivme/ivme.h"

namespace ivme {
namespace {

namespace nn = torch::nn;

// Of this process, in main memory.
int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The memory after each step from the third on is that after the third, and no step had to keep the old state
// beside the new.
template <class MakeOptimizer>
void expect_flat_memory(int steps, MakeOptimizer make_optimizer) {
  const xla::Metrics before = xla::metrics();
  {
    Accelerator accelerator({.device = "xla"});
    set_seed(1);
    nn::Sequential net(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 3));
    auto [model, optimizer] = accelerator.prepare(net, make_optimizer(net->parameters()));
    xla::Metrics third;
    int64_t resident = 0;
    for (int step = 0; step < steps; ++step) {
      auto x = at::randn({16, 8}), y = at::randint(3, {16});
      auto loss =
          nn::functional::cross_entropy(model(x.to(accelerator.device())), y.to(accelerator.device()));
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      accelerator.end_step();
      ASSERT_GT(loss.template item<double>(), 0);
      const xla::Metrics now = xla::metrics();
      if (step == 2) third = now;
      if (step == 200) resident = resident_bytes();
      if (step < 3) continue;
      ASSERT_EQ(now.live_buffers, third.live_buffers) << step;
      ASSERT_EQ(now.live_bytes, third.live_bytes) << step;
      ASSERT_EQ(now.programs, third.programs) << step;
    }
    EXPECT_LT(resident_bytes() - resident, 4 << 20);
    EXPECT_EQ(xla::metrics().kept_bytes, before.kept_bytes);
    EXPECT_GT(third.live_buffers, before.live_buffers);
  }
  EXPECT_EQ(xla::metrics().live_buffers, before.live_buffers);
  EXPECT_EQ(xla::metrics().live_bytes, before.live_bytes);
}

TEST(XlaMemory, sgd_with_momentum) {
  expect_flat_memory(
      500, [](const auto& parameters) { return optim::SGD(parameters, {.lr = 0.01, .momentum = 0.9}); });
}

TEST(XlaMemory, five_thousand_steps_of_adamw) {
  expect_flat_memory(5000, [](const auto& parameters) { return optim::AdamW(parameters, {.lr = 1e-3}); });
}

// Parameters, two moments and the gradients that zero_grad dropped: nothing else is left of a step.
TEST(XlaMemory, a_step_leaves_the_state_alone) {
  const xla::Metrics before = xla::metrics();
  Accelerator accelerator({.device = "xla"});
  nn::Linear net(8, 4);
  auto [model, optimizer] = accelerator.prepare(net, optim::AdamW(net->parameters(), {.lr = 1e-3}));
  for (int step = 0; step < 3; ++step) {
    accelerator.backward(model(at::ones({2, 8}).to(accelerator.device())).sum());
    optimizer.step();
    optimizer.zero_grad();
    accelerator.end_step();
  }
  EXPECT_EQ(xla::metrics().live_bytes - before.live_bytes, 3 * (8 * 4 + 4) * 4);
}

TEST(XlaMemory, what_is_never_read_is_given_back) {
  const xla::Metrics before = xla::metrics();
  {
    Accelerator accelerator({.device = "xla"});
    auto x = at::ones({1000}).to(accelerator.device());
    for (int i = 0; i < 100; ++i) x = x * 2 + at::ones({1000}).to(accelerator.device());
  }
  EXPECT_EQ(xla::metrics().live_buffers, before.live_buffers);
  EXPECT_EQ(xla::metrics().executions, before.executions);
}

// A chain as long as a loop that forgets to end its steps makes.
TEST(XlaMemory, a_recording_of_a_hundred_thousand_operations_can_be_dropped) {
  const xla::Metrics before = xla::metrics();
  {
    Accelerator accelerator({.device = "xla"});
    auto x = at::ones({4}).to(accelerator.device());
    for (int i = 0; i < 100000; ++i) x.add_(1);
  }
  EXPECT_EQ(xla::metrics().live_buffers, before.live_buffers);
}

TEST(XlaMemory, an_accelerator_after_another_leaves_nothing) {
  for (int round = 0; round < 5; ++round) {
    const xla::Metrics before = xla::metrics();
    {
      Accelerator accelerator({.device = "xla"});
      auto x = at::ones({100}).to(accelerator.device());
      EXPECT_EQ((x + x).sum().item<double>(), 200);
    }
    EXPECT_EQ(xla::metrics().live_buffers, before.live_buffers);
  }
}

}  // namespace
}  // namespace ivme
