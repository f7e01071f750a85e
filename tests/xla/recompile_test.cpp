// What may change from step to step without another program.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <thread>

#include "loop.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

int64_t programs() { return xla::metrics().programs; }

nn::Sequential make_mlp(int64_t width = 16) {
  return nn::Sequential(nn::Linear(8, width), nn::Tanh(), nn::Linear(width, 3));
}

Tensor loss_of_random_batch(const Accelerator& accelerator, PreparedModel<nn::SequentialImpl>& model) {
  auto x = at::randn({16, 8}), y = at::randint(3, {16});
  return F::cross_entropy(model(x.to(accelerator.device())), y.to(accelerator.device()));
}

// A model in training; each call of step() is one step, whose loss it returns.
struct Training {
  template <class MakeOptimizer>
  Training(const std::string& device, nn::Sequential network, MakeOptimizer make_optimizer)
      : accelerator({.device = device}),
        net(std::move(network)),
        optimizer(make_optimizer(net->parameters())),
        model(accelerator.prepare(net)),
        prepared(accelerator.prepare(optimizer)) {}

  double step() {
    auto loss = loss_of_random_batch(accelerator, model);
    accelerator.backward(loss);
    prepared.step();
    prepared.zero_grad();
    accelerator.end_step();
    return loss.item<double>();
  }

  Accelerator accelerator;
  nn::Sequential net;
  optim::Optimizer optimizer;
  PreparedModel<nn::SequentialImpl> model;
  PreparedOptimizer prepared;
};

const auto adamw = [](const auto& parameters) {
  return optim::AdamW(parameters, {.lr = 1e-2, .weight_decay = 0.1});
};
const auto sgd = [](const auto& parameters) {
  return optim::SGD(parameters, {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1});
};

// Among them those where the update adds 0 or multiplies by 1, and where two of its numbers are equal:
// AdamW scales by 1 - 0.1 lr, which is 0.999 (its second beta) at 0.01 and 0.9 (its first) at 1.
template <class MakeOptimizer>
void expect_one_program_for_all_learning_rates(MakeOptimizer make_optimizer) {
  std::vector<double> all[2];
  for (const char* device : {"cpu", "xla"}) {
    set_seed(1);
    auto before = programs();
    Training training(device, make_mlp(), make_optimizer);
    for (double lr : {1e-2, 0.0, 1.0, 1e-3, 0.0, 0.1, 0.9, 1e-2, 10.0}) {
      training.prepared.set_lr(lr);
      all[device == std::string("xla")].push_back(training.step());
    }
    EXPECT_LE(programs() - before, 1) << device;
  }
  test::expect_close(all[1], all[0], 1e-4);
}

TEST(XlaRecompile, learning_rates_of_adamw_are_one_program) {
  expect_one_program_for_all_learning_rates(adamw);
}

TEST(XlaRecompile, learning_rates_of_sgd_are_one_program) { expect_one_program_for_all_learning_rates(sgd); }

TEST(XlaRecompile, weight_of_a_loss_is_no_program_of_its_own) {
  set_seed(2);
  Training training("xla", make_mlp(), sgd);
  std::vector<int64_t> counts;
  for (double weight : {0.5, 0.0, 1.0, 2.0}) {
    auto loss = loss_of_random_batch(training.accelerator, training.model);
    auto x = at::ones({2, 8}).to(training.accelerator.device());
    training.accelerator.backward(loss + weight * training.model(x).square().mean());
    training.prepared.step();
    training.prepared.zero_grad();
    training.accelerator.end_step();
    counts.push_back(programs());
  }
  EXPECT_EQ(counts.front(), counts.back());
}

// The mean of all weights so far, kept outside the optimizer, and a copy of the first.
TEST(XlaRecompile, averaged_and_copied_weights_add_no_program_and_keep_their_values) {
  std::vector<Tensor> averages[2], copies[2];
  for (const char* device : {"cpu", "xla"}) {
    set_seed(3);
    at::NoGradGuard no_grad;
    Training training(device, make_mlp(), adamw);
    std::vector<Tensor> average;
    std::vector<Tensor>& copy = copies[device == std::string("xla")];
    for (const Tensor& parameter : training.net->parameters()) average.push_back(parameter.clone());
    int64_t after_two = 0;
    for (int step = 0; step < 8; ++step) {
      at::AutoGradMode grad(true);
      training.step();
      at::AutoGradMode none(false);
      for (size_t i = 0; i < average.size(); ++i)
        average[i].mul_(0.9).add_(training.net->parameters()[i], 0.1);
      training.accelerator.end_step();
      if (step == 1) after_two = programs();
      if (step == 4)
        for (const Tensor& parameter : training.net->parameters()) copy.push_back(parameter.clone());
    }
    EXPECT_EQ(programs(), after_two) << device;
    averages[device == std::string("xla")] = average;
  }
  for (size_t i = 0; i < averages[0].size(); ++i) {
    EXPECT_TRUE(averages[1][i].cpu().allclose(averages[0][i], 1e-4, 1e-6)) << i;
    EXPECT_TRUE(copies[1][i].cpu().allclose(copies[0][i], 1e-4, 1e-6)) << i;
  }
}

TEST(XlaRecompile, a_detached_alias_follows_the_weights_and_adds_no_program) {
  set_seed(4);
  Training training("xla", make_mlp(), sgd);
  training.step();
  auto weight = training.net->parameters()[0];
  Tensor alias = weight.detach(), copy = weight.detach().clone(), row = weight.detach()[3];
  Tensor first = copy.cpu();
  auto before = programs();
  for (int step = 0; step < 3; ++step) training.step();
  EXPECT_EQ(programs(), before);
  EXPECT_TRUE(at::equal(copy.cpu(), first));
  EXPECT_FALSE(at::equal(weight.detach().cpu(), first));
  EXPECT_TRUE(at::equal(alias.cpu(), weight.detach().cpu()));
  EXPECT_TRUE(at::equal(row.cpu(), weight.detach().cpu()[3]));
}

TEST(XlaRecompile, a_copy_that_is_held_costs_memory_and_no_program) {
  set_seed(5);
  Training training("xla", make_mlp(), sgd);
  training.step();
  auto before = xla::metrics();
  Tensor copy = training.net->parameters()[0].detach().clone();
  training.step();
  auto with_copy = xla::metrics();
  training.step();
  EXPECT_EQ(with_copy.kept_bytes - before.kept_bytes, copy.numel() * 4);
  EXPECT_EQ(xla::metrics().kept_bytes, with_copy.kept_bytes);
  EXPECT_EQ(xla::metrics().programs, before.programs);
}

TEST(XlaRecompile, reading_the_loss_of_every_step_adds_neither_program_nor_execution) {
  set_seed(6);
  Training training("xla", make_mlp(), sgd);
  training.step();
  auto before = xla::metrics();
  for (int step = 0; step < 5; ++step) training.step();  // reads it
  EXPECT_EQ(xla::metrics().programs, before.programs);
  EXPECT_EQ(xla::metrics().executions - before.executions, 5);
}

// The total is a constant before the first step, and memory from then on.
TEST(XlaRecompile, a_total_of_losses_on_the_device_takes_at_most_two_programs) {
  set_seed(6);
  Training training("xla", make_mlp(9), sgd);
  auto before = xla::metrics();
  Tensor total = at::zeros({}, at::TensorOptions().device(training.accelerator.device()));
  double expected = 0;
  for (int step = 0; step < 6; ++step) {
    auto loss = loss_of_random_batch(training.accelerator, training.model);
    total += loss.detach();
    training.accelerator.backward(loss);
    training.prepared.step();
    training.prepared.zero_grad();
    training.accelerator.end_step();
    expected += loss.item<double>();
  }
  EXPECT_NEAR(total.item<double>(), expected, 1e-5);
  EXPECT_LE(xla::metrics().programs - before.programs, 2);
  EXPECT_EQ(xla::metrics().executions - before.executions, 6);
}

TEST(XlaRecompile, evaluation_between_steps_adds_one_program) {
  set_seed(6);
  Training training("xla", make_mlp(13), sgd);
  training.step();
  auto before = programs();
  for (int epoch = 0; epoch < 3; ++epoch) {
    training.step();
    at::NoGradGuard no_grad;
    training.net->eval();
    EXPECT_GT(loss_of_random_batch(training.accelerator, training.model).item<double>(), 0);
    training.accelerator.end_step();
    training.net->train();
  }
  EXPECT_EQ(programs() - before, 1);
}

TEST(XlaRecompile, a_thread_that_makes_tensors_meanwhile_changes_nothing) {
  auto losses = [](bool beside_a_thread) {
    set_seed(7);
    Training training("xla", make_mlp(), sgd);
    training.step();
    auto device = training.accelerator.device();
    auto doubled = [device](const Tensor& x) { return (x.to(device) * 2).cpu(); };
    const Tensor some = at::arange(12).to(at::kFloat);
    EXPECT_TRUE(at::equal(doubled(some), some * 2));
    auto before = programs();
    std::jthread maker;
    if (beside_a_thread)
      maker = std::jthread([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          std::vector<Tensor> unread;
          for (int i = 0; i < 5; ++i) unread.push_back(some.to(device) + 1);
          if (!at::equal(doubled(some), some * 2)) ADD_FAILURE() << "the thread read something else";
        }
      });
    std::vector<double> result;
    for (int step = 0; step < 100; ++step) result.push_back(training.step());
    EXPECT_EQ(programs(), before);
    return result;
  };
  auto alone = losses(false);
  EXPECT_EQ(losses(true), alone);
}

TEST(XlaRecompile, two_accelerators_in_turns_have_a_program_each) {
  set_seed(8);
  Training one("xla", make_mlp(12), sgd), other("xla", make_mlp(20), adamw);
  one.step(), other.step();
  auto before = xla::metrics();
  for (int step = 0; step < 4; ++step) {
    auto loss = loss_of_random_batch(one.accelerator, one.model);
    double between = other.step();  // while the first one's step is half recorded
    EXPECT_TRUE(std::isfinite(between));
    one.accelerator.backward(loss);
    one.prepared.step();
    one.prepared.zero_grad();
    one.accelerator.end_step();
  }
  EXPECT_EQ(xla::metrics().programs, before.programs);
  EXPECT_EQ(xla::metrics().executions - before.executions, 8);
}

TEST(XlaRecompile, the_probability_of_dropout_may_change) {
  set_seed(9);
  nn::Dropout dropout(0.5);
  Training training("xla", nn::Sequential(nn::Linear(8, 16), dropout, nn::Linear(16, 3)), sgd);
  training.step();
  auto before = programs();
  for (double p : {0.1, 0.9, 0.25}) {
    dropout->options.p(p);
    training.step();
  }
  EXPECT_EQ(programs(), before);
}

// Turns vectors into letters with the matrix that turned letters into vectors.
struct LettersImpl : nn::Module {
  explicit LettersImpl(const Tensor& shared) : weight(register_parameter("weight", shared)) {}
  Tensor weight;
};
TORCH_MODULE(Letters);

struct TiedImpl : nn::Module {
  nn::Embedding encoder = register_module("encoder", nn::Embedding(20, 8));
  Letters decoder = register_module("decoder", Letters(encoder->weight));
  Tensor forward(const Tensor& letters) { return at::linear(encoder(letters).tanh(), decoder->weight); }
};
TORCH_MODULE(Tied);

// As Python programs do it; the decoder's own weight stays registered, without a gradient.
struct AssignedImpl : nn::Module {
  nn::Embedding encoder = register_module("encoder", nn::Embedding(20, 8));
  nn::Linear decoder = register_module("decoder", nn::Linear(nn::LinearOptions(8, 20).bias(false)));
  AssignedImpl() { decoder->weight = encoder->weight; }
  Tensor forward(const Tensor& letters) { return decoder(encoder(letters).tanh()); }
};
TORCH_MODULE(Assigned);

struct TiedRun {
  std::vector<double> losses;
  Tensor gradient, weight;
};

template <class Model>
TiedRun train_tied(const std::string& device) {
  set_seed(10);
  Accelerator accelerator({.device = device});
  Model net;
  auto [model, optimizer] = accelerator.prepare(net, sgd(net->parameters()));
  EXPECT_TRUE(net->decoder->weight.is_same(net->encoder->weight));
  TiedRun run;
  int64_t after_one = 0;
  for (int step = 0; step < 5; ++step) {
    auto letters = at::randint(20, {12}), next = at::randint(20, {12});
    auto loss = F::cross_entropy(model(letters.to(accelerator.device())), next.to(accelerator.device()));
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    accelerator.end_step();
    run.losses.push_back(loss.template item<double>());
    if (step == 0) after_one = programs();
  }
  EXPECT_EQ(programs(), after_one);
  EXPECT_TRUE(net->decoder->weight.is_same(net->encoder->weight));
  run.gradient = net->encoder->weight.grad().cpu();
  run.weight = net->decoder->weight.detach().cpu();
  return run;
}

template <class Model>
void expect_tied_as_on_the_cpu() {
  TiedRun traced = train_tied<Model>("xla"), eager = train_tied<Model>("cpu");
  test::expect_close(traced.losses, eager.losses, 1e-5);
  EXPECT_TRUE(traced.gradient.allclose(eager.gradient, 1e-4, 1e-6));
  EXPECT_TRUE(traced.weight.allclose(eager.weight, 1e-4, 1e-6));
}

TEST(XlaRecompile, weights_registered_twice_stay_one) { expect_tied_as_on_the_cpu<Tied>(); }

TEST(XlaRecompile, an_assigned_weight_stays_tied) { expect_tied_as_on_the_cpu<Assigned>(); }

template <class MakeOptimizer>
void expect_few_programs(MakeOptimizer make_optimizer, int64_t most) {
  std::vector<double> all[2];
  for (const char* device : {"cpu", "xla"}) {
    set_seed(11);
    auto before = programs();
    Training training(device, make_mlp(10), make_optimizer);
    for (int step = 0; step < 6; ++step) all[device == std::string("xla")].push_back(training.step());
    EXPECT_LE(programs() - before, most) << device;
  }
  test::expect_close(all[1], all[0], 1e-5);
}

// The first momentum is the whole gradient, later ones are damped.
TEST(XlaRecompile, dampened_momentum_takes_two_programs) {
  expect_few_programs(
      [](const auto& parameters) {
        return optim::SGD(parameters, {.lr = 0.05, .momentum = 0.9, .dampening = 0.5});
      },
      2);
}

template <class Optimizer, class Options>
auto wrapped(const Options& options) {
  return [options](const auto& parameters) {
    return optim::wrap(std::make_shared<Optimizer>(parameters, options));
  };
}

// Their state exists before the first step.
TEST(XlaRecompile, optimizers_of_torch_take_one_program) {
  namespace torch_optim = torch::optim;
  expect_few_programs(wrapped<torch_optim::Adam>(torch_optim::AdamOptions(1e-2).amsgrad(true)), 1);
  expect_few_programs(wrapped<torch_optim::AdamW>(torch_optim::AdamWOptions(1e-2)), 1);
  expect_few_programs(wrapped<torch_optim::SGD>(torch_optim::SGDOptions(1e-2).momentum(0.9).nesterov(true)),
                      1);
  expect_few_programs(wrapped<torch_optim::Adagrad>(torch_optim::AdagradOptions(1e-2)), 1);
  expect_few_programs(
      wrapped<torch_optim::RMSprop>(torch_optim::RMSpropOptions(1e-3).momentum(0.9).centered(true)), 1);
}

// Of torch's class, but not known as it.
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(const std::vector<Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                  std::make_unique<torch::optim::SGDOptions>(1e-2)) {}
  Tensor step(LossClosure) override {
    at::NoGradGuard no_grad;
    for (auto& group : param_groups())
      for (auto& parameter : group.params()) parameter.add_(parameter.grad(), -1e-2);
    return {};
  }
};

TEST(XlaRecompile, an_optimizer_that_is_not_known_is_told_of) {
  testing::internal::CaptureStderr();
  expect_few_programs(
      [](const auto& parameters) { return optim::wrap(std::make_shared<OwnOptimizer>(parameters)); }, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("OwnOptimizer is not known to ivme"));
}

// The learning rate of a schedule, and the factor of clipping, change in every step.
TEST(XlaRecompile, clipping_and_a_schedule_are_one_program) {
  std::vector<double> all[2];
  for (const char* device : {"cpu", "xla"}) {
    set_seed(12);
    auto before = xla::metrics();
    Training training(device, make_mlp(11), adamw);
    auto schedule = training.accelerator.prepare(
        optim::cosine_with_warmup(training.optimizer, {.warmup_steps = 2, .total_steps = 6}));
    for (int step = 0; step < 6; ++step) {
      auto loss = loss_of_random_batch(training.accelerator, training.model);
      training.accelerator.backward(loss);
      auto norm = training.accelerator.clip_grad_norm_(training.model, step % 2 ? 1e-3 : 1e3);
      training.prepared.step();
      schedule.step();
      training.prepared.zero_grad();
      training.accelerator.end_step();
      all[device == std::string("xla")].push_back(loss.item<double>());
      all[device == std::string("xla")].push_back(norm.item<double>());
    }
    EXPECT_LE(xla::metrics().programs - before.programs, 1) << device;
  }
  test::expect_close(all[1], all[0], 1e-5);
}

}  // namespace
}  // namespace ivme
