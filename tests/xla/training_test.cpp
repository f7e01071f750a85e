// The loop of the README on xla against the same loop on the CPU.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "ivme/ivme.h"
#include "ranks.h"

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
Run train(const std::string& device, int steps, MakeOptimizer make_optimizer,
          Precision precision = Precision::no) {
  Accelerator accelerator({.mixed_precision = precision, .device = device});
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

TEST(XlaTraining, bf16_trains_float32_weights_to_nearly_the_same_losses) {
  auto adamw = [](const auto& parameters) { return optim::AdamW(parameters, {.lr = 1e-3}); };
  auto exact = train("xla", 50, adamw), rounded = train("xla", 50, adamw, Precision::bf16);
  EXPECT_NE(exact.losses, rounded.losses);
  for (size_t i = 0; i < exact.losses.size(); ++i)
    EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.05 * exact.losses[i]) << i;
  for (const auto& parameter : rounded.parameters) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST(XlaFallback, an_operation_without_a_lowering_is_computed_on_the_cpu_when_asked_and_counted) {
  if (!std::getenv("IVME_XLA_CPU_FALLBACK")) {
    auto ended =
        test::run("env IVME_XLA_CPU_FALLBACK=1 " + test::this_program() + " --gtest_filter=XlaFallback.*");
    EXPECT_EQ(ended.code, 0) << ended.output;
    for (const char* part :
         {"ivme: aten::nonzero at training_test.cpp:", " is computed on the CPU, as IVME_"})
      EXPECT_NE(ended.output.find(part), std::string::npos) << ended.output;
    return;
  }
  Accelerator accelerator({.device = "xla"});
  auto x = at::tensor({0.0f, 2.0f, 0.0f, 3.0f}).to(accelerator.device());
  EXPECT_TRUE((x * 2).nonzero().cpu().equal(at::tensor({1, 3}).view({2, 1})));
  auto out = at::empty({0}, at::TensorOptions(at::kLong).device(accelerator.device()));
  at::nonzero_out(out, x);
  EXPECT_TRUE(out.add(1).cpu().equal(at::tensor({2, 4}).view({2, 1})));
  EXPECT_EQ(xla::metrics().fallbacks, 2);
}

// Rows of numbers and their classes.
struct Rows {
  int64_t count;
  int64_t size() const { return count; }
  std::pair<at::Tensor, at::Tensor> get_batch(const std::vector<int64_t>& indices) const {
    auto data = at::empty({static_cast<int64_t>(indices.size()), 20}),
         target = at::empty({data.size(0)}, at::kLong);
    for (size_t i = 0; i < indices.size(); ++i) {
      data[static_cast<int64_t>(i)] = at::arange(20).add(static_cast<double>(indices[i])).sin();
      target[static_cast<int64_t>(i)] = indices[i] % 10;
    }
    return {data, target};
  }
};

struct Counted {
  std::vector<at::Tensor> parameters;
  int64_t programs, executions;
};

// Epochs over 100 rows in batches of 8: the last one is short.
Counted train_on_rows(const AcceleratorOptions& options, int epochs,
                      const LoaderOptions& loading = {.batch_size = 8}) {
  Accelerator accelerator(options);
  auto net = make_mlp();
  auto [model, optimizer, batches] = accelerator.prepare(
      net, optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}), data_loader(Rows{100}, loading));
  auto before = xla::metrics();
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& [data, target] : batches) {
      auto accumulating = accelerator.accumulate(model);
      accelerator.backward(nn::functional::cross_entropy(model(data), target));
      optimizer.step();
      optimizer.zero_grad();
    }
  auto after = xla::metrics();
  Counted counted{{}, after.programs - before.programs, after.executions - before.executions};
  for (const auto& parameter : net->parameters()) counted.parameters.push_back(parameter.detach().cpu());
  return counted;
}

TEST(XlaTraining, epochs_with_a_short_last_batch_are_one_program_and_one_execution_a_step) {
  auto counted = train_on_rows({.device = "xla"}, 50);
  EXPECT_EQ(counted.programs, 1);
  EXPECT_EQ(counted.executions, 50 * 13);
}

TEST(XlaTraining, accumulation_takes_two_programs_and_an_execution_for_each_micro_batch) {
  auto counted = train_on_rows({.gradient_accumulation_steps = 4, .device = "xla"}, 3);
  EXPECT_EQ(counted.programs, 2);
  EXPECT_EQ(counted.executions, 3 * 13);
}

TEST(XlaTraining, more_programs_than_allowed_are_an_error) {
  train_on_rows({.gradient_accumulation_steps = 4, .device = "xla", .max_programs = 2}, 1);
  try {
    train_on_rows({.gradient_accumulation_steps = 3, .device = "xla", .max_programs = 1}, 1);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("would be program 2, and max_programs is 1: "),
              std::string::npos)
        << error.what();
  }
}

// A loader pads no batch whose size is nowhere said.
struct Eights : BatchSampler {
  std::vector<std::vector<int64_t>> batches(int64_t) override {
    std::vector<std::vector<int64_t>> all;
    for (int64_t i = 0; i < 100; ++i) {
      if (i % 8 == 0) all.emplace_back();
      all.back().push_back(i);
    }
    return all;
  }
};

TEST(XlaTraining, a_short_last_batch_that_is_left_short_is_explained_by_name) {
  testing::internal::CaptureStderr();
  train_on_rows({.device = "xla"}, 2, {.batch_sampler = std::make_shared<Eights>()});
  std::string said = testing::internal::GetCapturedStderr();
  size_t first = said.find("input 'batch tensor 1', first used at training_test.cpp:");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_NE(said.find(", has 4 rows where it had 8", first), std::string::npos) << said;
  EXPECT_EQ(said.find("batch tensor 1", first + 10), std::string::npos) << said;  // once
}

TEST(XlaTraining, accumulation_equals_the_cpu) {
  auto eager = train_on_rows({.gradient_accumulation_steps = 4, .device = "cpu"}, 1);
  auto traced = train_on_rows({.gradient_accumulation_steps = 4, .device = "xla"}, 1);
  for (size_t i = 0; i < eager.parameters.size(); ++i)
    EXPECT_TRUE(traced.parameters[i].allclose(eager.parameters[i], 1e-4, 1e-6));
}

TEST(XlaTraining, recording_adds_no_program_and_no_execution) {
  std::string path = ::testing::TempDir() + "xla_record_" + std::to_string(getpid()) + ".jsonl";
  auto counted = train_on_rows({.device = "xla", .record = path, .record_every = 5}, 2);
  std::ifstream file(path);
  std::string line, last;
  int steps = 0;
  while (std::getline(file, line))
    if (line.find("\"kind\":\"step\"") != std::string::npos) ++steps, last = line;
  std::remove(path.c_str());
  EXPECT_EQ(counted.programs, 1);
  EXPECT_EQ(counted.executions, 2 * 13);
  EXPECT_EQ(steps, 2 * 13);
  EXPECT_NE(last.find("\"samples\":200"), std::string::npos) << last;
}

}  // namespace
}  // namespace ivme
