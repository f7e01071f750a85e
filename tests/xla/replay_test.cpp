// Compiled steps: what is replayed has the numbers of the recorded loop, and what cannot be replayed is said.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "ivme/ivme.h"
#include "message_of.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

constexpr CompileOptions soon = {.traced_calls = 3};

// " at replay_test.cpp:87".
std::string at_line(int line) { return " at replay_test.cpp:" + std::to_string(line); }

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

xla::Metrics operator-(xla::Metrics a, const xla::Metrics& b) {
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

auto adamw = [](const auto& parameters) {
  return optim::AdamW(parameters, {.lr = 1e-2, .weight_decay = 0.1});
};

void expect_equal(const Outcome& run, const Outcome& expected) {
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

TEST(XlaReplay, adamw_with_batch_norm_dropout_and_clipping_has_the_numbers_of_recording) {
  Outcome run =
      expect_replays_to_equal_recording(adamw, [](auto& a, auto& m, auto& o) { return plain_step(a, m, o); });
  // Calls 6 to 40 but for 8, 16 and 32.
  EXPECT_EQ(run.metrics.replays, 32);
}

TEST(XlaReplay, sgd_with_momentum_has_the_numbers_of_recording) {
  expect_replays_to_equal_recording(
      [](const auto& parameters) {
        return optim::SGD(parameters, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
      },
      [](auto& a, auto& m, auto& o) { return plain_step(a, m, o); });
}

TEST(XlaReplay, gradients_dropped_after_the_update) {
  expect_replays_to_equal_recording(adamw, [](auto& accelerator, auto& model, auto& optimizer) {
    return [&](const at::Tensor& x, const at::Tensor& y) {
      auto loss = nn::functional::cross_entropy(model(x), y);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      return loss;
    };
  });
}

TEST(XlaReplay, accumulation_replays_both_kinds_of_micro_batch) {
  Outcome run = expect_replays_to_equal_recording(adamw,
                                                  [](auto& accelerator, auto& model, auto& optimizer) {
                                                    return [&](const at::Tensor& x, const at::Tensor& y) {
                                                      auto scope = accelerator.accumulate(model);
                                                      auto loss = nn::functional::cross_entropy(model(x), y);
                                                      accelerator.backward(loss);
                                                      optimizer.step();
                                                      optimizer.zero_grad();
                                                      return loss;
                                                    };
                                                  },
                                                  {.steps = 64, .counted = 16, .accumulation = 4});
  EXPECT_GT(run.metrics.replays, 35);
}

TEST(XlaReplay, a_schedule_inside_the_step_goes_on) {
  expect_replays_to_equal_recording(adamw, [](auto& accelerator, auto& model, auto& optimizer) {
    auto schedule = accelerator.prepare(
        optim::cosine_with_warmup(optimizer.unwrap(), {.warmup_steps = 10, .total_steps = 40}));
    return [&, schedule](const at::Tensor& x, const at::Tensor& y) mutable {
      optimizer.zero_grad();
      auto loss = nn::functional::cross_entropy(model(x), y);
      accelerator.backward(loss);
      optimizer.step();
      schedule.step();
      return loss;
    };
  });
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

double value(const at::Tensor& tensor) { return tensor.item<double>(); }

TEST(XlaReplay, a_factor_that_changes_is_refused_and_stays_right) {
  Line line, plain;
  double factor = 1;
  auto step =
      line.accelerator.compile([&](const at::Tensor& x) { return (line.model(x) * factor).mean(); }, soon);
  const int here = __LINE__ - 1;
  CaptureStderr();
  for (int i = 0; i < 20; ++i, factor *= 0.9)
    EXPECT_NEAR(value(step(line.x)), value((plain.model(plain.x.to("xla")) * factor).mean()), 1e-6);
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("the step compiled" + at_line(here) +
                              " is recorded in every call instead of replayed: "
                              "a number of 'aten::mul.Tensor'" +
                              at_line(here) +
                              " was 0.81 and is 0.729. Pass what changes as ivme::host_scalar(function).")));
}

TEST(XlaReplay, a_factor_that_changes_may_be_a_host_scalar) {
  Line line;
  double factor = 1;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) { return line.update(x, host_scalar([&] { return factor; })); }, soon);
  Line plain;
  const auto before = xla::metrics();
  for (int i = 0; i < 20; ++i, factor *= 0.9)
    EXPECT_EQ(value(step(line.x)), value(plain.update(plain.x.to("xla"), at::scalar_tensor(factor)))) << i;
  EXPECT_GT((xla::metrics() - before).replays, 10);
}

// It changes only after it was believed to be constant: the next comparison finds it.
TEST(XlaReplay, a_factor_that_changes_late_is_found_by_a_comparison) {
  Line line;
  double factor = 1;
  auto step =
      line.accelerator.compile([&](const at::Tensor& x) { return (line.model(x) * factor).mean(); }, soon);
  const int here = __LINE__ - 1;
  for (int i = 1; i <= 10; ++i) step(line.x);
  factor = 0.5;
  std::string message = test::message_of([&] {
    for (int i = 11; i <= 16; ++i) step(line.x);
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("was replayed, but in call 16, which was recorded to compare, a number of "
                              "'aten::mul.Tensor'" +
                              at_line(here) + " was 1 and is 0.5"),
                    HasSubstr("may have computed with what is out of date")));
  EXPECT_EQ(value(step(line.x)), 0.5 * 5);
}

TEST(XlaReplay, a_decay_that_changes_is_right_with_a_host_scalar_and_refused_without) {
  for (const bool tagged : {true, false}) {
    Line line, plain;
    at::Tensor average = at::zeros({1, 4}).to("xla"), expected = at::zeros({1, 4}).to("xla");
    int count = 0;
    auto decay = [&] { return std::min(0.999, (1.0 + count) / (10.0 + count)); };
    auto step = line.accelerator.compile(
        [&](const at::Tensor& x) {
          at::NoGradGuard no_grad;
          if (tagged)
            average.lerp_(line.net->weight, host_scalar([&] { return 1 - decay(); }));
          else
            average.lerp_(line.net->weight, 1 - decay());
          return line.model(x).sum();
        },
        soon);
    const auto before = xla::metrics();
    CaptureStderr();
    for (count = 0; count < 30; ++count) {
      step(line.x);
      at::NoGradGuard no_grad;
      expected.lerp_(plain.net->weight, 1 - decay());
      EXPECT_EQ(value(average.sum()), value(expected.sum())) << count;
    }
    EXPECT_EQ(GetCapturedStderr().find("instead of replayed") == std::string::npos, tagged);
    EXPECT_EQ((xla::metrics() - before).replays > 20, tagged);
  }
}

TEST(XlaReplay, a_branch_of_the_host_is_never_frozen) {
  Line line;
  int count = 0;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) {
        auto y = line.model(x).sum();
        return ++count % 10 == 0 ? y * 2 : y;
      },
      {});
  CaptureStderr();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(value(step(line.x)), i % 10 == 0 ? 20 : 10) << i;
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("is recorded in every call instead of replayed: "));
}

TEST(XlaReplay, a_tensor_that_escapes_is_refused) {
  Line line;
  std::vector<at::Tensor> history;
  at::Tensor last;
  auto into_a_vector = line.accelerator.compile(
      [&](const at::Tensor& x) {
        auto y = line.model(x).sum();
        history.push_back(y.detach());
        return y;
      },
      soon);
  auto into_a_variable =
      line.accelerator.compile([&](const at::Tensor& x) { last = line.model(x).mean(); }, soon);
  CaptureStderr();
  for (int i = 0; i < 10; ++i) {
    into_a_vector(line.x);
    into_a_variable(line.x);
  }
  EXPECT_EQ(history.size(), 10U);
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said,
              AllOf(HasSubstr("a tensor<f32> that it returns is kept by the program."),
                    testing::ContainsRegex(
                        "the result of 'aten::mean.dim' at replay_test.cpp:[0-9]+ is kept by the program")));
}

TEST(XlaReplay, optimizers_of_torch_are_refused_and_stay_right) {
  auto torch_adamw = [](const auto& parameters) {
    return std::make_shared<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2));
  };
  auto make_step = [](auto& a, auto& m, auto& o) { return plain_step(a, m, o); };
  CaptureStderr();
  Outcome run = train({.steps = 300}, torch_adamw, make_step);
  EXPECT_THAT(GetCapturedStderr(),
              testing::ContainsRegex(
                  "what AdamW counts from step to step is not known at replay_test.cpp:[0-9]+. Use "
                  "the optimizer of ivme::optim"));
  expect_equal(run, train({.steps = 300, .compiled = false}, torch_adamw, make_step));
  EXPECT_EQ(run.metrics.replays, 0);
}

TEST(XlaReplay, what_reads_or_uploads_in_the_step_is_refused) {
  Line line;
  const int here = __LINE__ + 2;
  auto reads = line.accelerator.compile(
      [&](const at::Tensor& x) { return line.model(x).sum().item<double>() > 0 ? line.model(x) : x; }, soon);
  int count = 0;
  auto uploads = line.accelerator.compile(
      [&](const at::Tensor& x) { return x + at::full({4}, ++count, at::kFloat).to("xla"); }, soon);
  auto same_upload = line.accelerator.compile(
      [&](const at::Tensor& x) { return x + at::arange(4).to(at::kFloat).to("xla"); }, soon);
  const auto before = xla::metrics();
  CaptureStderr();
  for (int i = 1; i <= 10; ++i) {
    reads(line.x);
    EXPECT_EQ(value(uploads(line.x).sum()), 8 * (1 + i));
    EXPECT_EQ(value(same_upload(line.x).sum()), 8 + 12);
  }
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("it reads a value on the host" + at_line(here) + "."),
                          HasSubstr("other data are moved to xla in it than in the call before")));
  EXPECT_EQ((xla::metrics() - before).replays, 10 - 5) << "of same_upload: calls 5 to 10 but for 8";
}

TEST(XlaReplay, what_happens_between_the_calls_counts) {
  Line line, plain;
  auto one = [](Line& l, const at::Tensor& x) { return l.update(x, at::ones({}).to("xla")); };
  line.optimizer.zero_grad();
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) { return line.update(x, host_scalar([] { return 1.0; })); }, soon);
  const auto before = xla::metrics();
  auto both = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      EXPECT_EQ(value(step(line.x)), value(one(plain, plain.x.to("xla"))));
      EXPECT_TRUE(line.net->weight.cpu().equal(plain.net->weight.cpu()));
    }
  };
  both(10);
  for (Line* l : {&line, &plain}) l->optimizer.set_lr(0.02);
  both(5);
  for (Line* l : {&line, &plain}) {
    at::NoGradGuard no_grad;
    l->net->weight.mul_(0.5);  // the same tensor
  }
  both(5);
  for (Line* l : {&line, &plain}) l->net->weight.set_data(at::full({1, 4}, 3.0).to(at::kFloat).to("xla"));
  both(10);
  for (Line* l : {&line, &plain}) l->net->bias.set_requires_grad(false);
  both(10);
  EXPECT_GT((xla::metrics() - before).replays, 15);
}

TEST(XlaReplay, training_and_evaluation_mode_are_told_apart) {
  Accelerator accelerator({.device = "xla"});
  auto net = std::make_shared<Net>();
  auto model = accelerator.prepare(net);
  auto step = accelerator.compile([&](const at::Tensor& x) { return model(x).sum(); }, soon);
  auto x = at::randn({16, 8});
  for (int i = 0; i < 12; ++i) step(x);
  net->eval();
  double first = value(step(x));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(value(step(x)), first);
  net->train();
  EXPECT_NE(value(step(x)), value(step(x)));
}

TEST(XlaReplay, shapes_and_plain_arguments_are_told_apart_and_structures_returned) {
  Accelerator accelerator({.device = "xla"});
  auto step = accelerator.compile(
      [&](const std::pair<at::Tensor, at::Tensor>& pair, int power) {
        return std::tuple(pair.first.pow(power), at::Tensor(), (pair.first + pair.second).t(), pair.second);
      },
      soon);
  const auto before = xla::metrics();
  for (int i = 0; i < 20; ++i) {
    const int64_t rows = 2 + i % 2;
    auto a = at::full({rows, 3}, i, at::kFloat), b = at::full({rows, 3}, -1, at::kFloat);
    auto [powered, nothing, sum, second] = step(std::pair(a, b), 2 + i % 2);
    EXPECT_TRUE(powered.cpu().equal(a.pow(2 + i % 2)));
    EXPECT_FALSE(nothing.defined());
    EXPECT_TRUE(sum.cpu().equal((a + b).t()));
    EXPECT_TRUE(second.cpu().equal(b));
  }
  EXPECT_EQ((xla::metrics() - before).replays, 2 * 5) << "calls 5 to 10 of each but for 8";
}

TEST(XlaReplay, a_target_network_that_is_copied_in_the_step_or_now_and_then) {
  Line line, plain;
  at::NoGradGuard no_grad;
  at::Tensor inside = at::zeros({1, 4}).to("xla"), outside = at::zeros({1, 4}).to("xla");
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) {
        inside.copy_(line.net->weight);
        auto y = (x * inside).sum() + (x * outside).sum();
        line.net->weight.add_(1);
        return y;
      },
      soon);
  const auto before = xla::metrics();
  double weight = 1, copied = 0;
  for (int i = 0; i < 30; ++i, weight += 1) {
    if (i % 7 == 0) {
      outside.copy_(line.net->weight);
      copied = weight;
    }
    EXPECT_EQ(value(step(line.x)), 8 * (weight + copied)) << i;
  }
  EXPECT_GT((xla::metrics() - before).replays, 10);
}

TEST(XlaReplay, learning_rates_that_the_step_sets_itself_are_refused) {
  Line a, b;
  auto sets = a.accelerator.compile(
      [&](const at::Tensor& x) {
        a.optimizer.set_lr(0.01);
        return a.update(x, at::ones({}).to("xla"));
      },
      soon);
  auto raw = optim::constant(b.optimizer.unwrap());
  double rate = 0.01;
  auto unprepared = b.accelerator.compile(
      [&](const at::Tensor& x) {
        b.optimizer.unwrap().set_lr(rate *= 0.9);
        return b.update(x, host_scalar([] { return 1.0; }));
      },
      soon);
  CaptureStderr();
  for (int i = 0; i < 6; ++i) {
    sets(a.x);
    unprepared(b.x);
  }
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("it sets a learning rate at replay_test.cpp:"),
                                         HasSubstr("it changes a learning rate by other means")));
}

TEST(XlaReplay, an_optimizer_that_is_not_prepared_is_refused_and_stays_right) {
  Line line, plain;
  optim::Adam adam(line.net->parameters(), {.lr = 0.1}), plain_adam(plain.net->parameters(), {.lr = 0.1});
  auto update = [](Line& l, optim::Adam& optimizer, const at::Tensor& x) {
    optimizer.zero_grad();
    auto loss = l.model(x).square().mean();
    l.accelerator.backward(loss);
    optimizer.step();
    return loss;
  };
  auto step = line.accelerator.compile([&](const at::Tensor& x) { return update(line, adam, x); }, soon);
  CaptureStderr();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(value(step(line.x)), value(update(plain, plain_adam, plain.x.to("xla"))));
  EXPECT_THAT(GetCapturedStderr(),
              HasSubstr("is recorded in every call instead of replayed: a number of 'aten::"));
}

TEST(XlaReplay, a_count_on_xla_that_belongs_to_no_recording_is_refused) {
  Line line;
  at::Tensor seen = at::zeros({}, "xla");
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) {
        seen.add_(2);
        return line.model(x).sum();
      },
      soon);
  CaptureStderr();
  for (int i = 0; i < 10; ++i) step(line.x);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("it changes a tensor<f32> that was made on xla from nothing"));
  EXPECT_EQ(value(seen), 20);
}

TEST(XlaReplay, an_optimizer_that_is_prepared_anew_is_the_one_that_steps) {
  Line line;
  auto optimizer = line.optimizer;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) {
        optimizer.zero_grad();
        auto loss = line.model(x).sum();
        line.accelerator.backward(loss);
        optimizer.step();
        return loss;
      },
      soon);
  for (int i = 0; i < 10; ++i) step(line.x);
  optimizer = line.accelerator.prepare(optim::SGD(line.net->parameters(), {.lr = 0}));
  const auto weight = line.net->weight.detach().cpu();
  for (int i = 0; i < 10; ++i) step(line.x);
  EXPECT_TRUE(line.net->weight.cpu().equal(weight));
}

TEST(XlaReplay, arguments_that_share_memory_are_told_apart_from_those_that_do_not) {
  Accelerator accelerator({.device = "xla"});
  auto step =
      accelerator.compile([](const at::Tensor& a, const at::Tensor& b) { return a.sum() - b.sum(); }, soon);
  auto u = at::ones({4, 2}).to("xla"), v = at::full({4, 2}, 3.0).to("xla");
  for (int i = 0; i < 12; ++i) EXPECT_EQ(value(step(u.narrow(0, 0, 2), u.narrow(0, 2, 2))), 0);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(value(step(u.narrow(0, 0, 2), v.narrow(0, 2, 2))), 4 - 12);
}

TEST(XlaReplay, what_is_kept_of_an_argument_is_not_the_next_argument) {
  Accelerator accelerator({.device = "xla"});
  auto before = at::ones({2}).to("xla");
  auto step = accelerator.compile(
      [&](const at::Tensor& x) {
        auto y = (x - before).sum();
        before.copy_(x);
        return y;
      },
      soon);
  auto same = at::full({2}, 5.0).to("xla");
  for (int i = 0; i < 12; ++i) EXPECT_EQ(value(step(same)), i == 0 ? 8 : 0);
  EXPECT_EQ(value(step(at::full({2}, 6.0))), 2);
  EXPECT_EQ(value(step(at::full({2}, 8.0))), 4);
}

TEST(XlaReplay, a_copy_of_the_step_goes_on_where_it_was) {
  Line line;
  auto step = line.accelerator.compile([&](const at::Tensor& x) { return line.model(x).sum(); }, soon);
  for (int i = 0; i < 6; ++i) step(line.x);
  auto copy = step;
  EXPECT_EQ(value(copy(line.x)), 10);
}

TEST(XlaReplay, an_argument_that_counts_is_told_of) {
  Line line;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x, int count) { return line.model(x).sum() + count; }, soon);
  CaptureStderr();
  for (int i = 0; i < 80; ++i) EXPECT_EQ(value(step(line.x, i)), 10 + i);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("have had 64 different forms"));
}

TEST(XlaReplay, a_call_that_throws_leaves_the_step_usable) {
  Line line;
  bool fails = false;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x) {
        auto y = line.model(x).sum();
        if (fails) throw std::runtime_error("no more data");
        return y;
      },
      {.traced_calls = 50});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value(step(line.x)), 10);
  fails = true;
  EXPECT_THROW(step(line.x), std::runtime_error);
  fails = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value(step(line.x)), 10);
}

TEST(XlaReplay, on_the_cpu_each_call_calls_the_step) {
  Accelerator accelerator({.device = "cpu"});
  int calls = 0;
  auto step = accelerator.compile([&](double factor) {
    ++calls;
    return at::ones({2}) * host_scalar([&] { return factor; });
  });
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(step(i).equal(at::full({2}, i, at::kFloat)));
  EXPECT_EQ(calls, 50);
}

TEST(XlaReplay, fewer_than_three_recorded_calls_are_refused) {
  Accelerator accelerator({.device = "xla"});
  EXPECT_THAT(test::message_of([&] { accelerator.compile([] {}, {.traced_calls = 2}); }),
              HasSubstr("It takes at least 3 to see what changes from call to call."));
}

}  // namespace
}  // namespace ivme
