// Compiled steps: what is replayed has the numbers of the recorded loop.
#include "replay_loop.h"

namespace ivme {
namespace {

using namespace replay_test;

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

}  // namespace
}  // namespace ivme
