// Compiled steps: what cannot be replayed is said, with its line, and stays right.
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>

#include "message_of.h"
#include "replay_loop.h"

namespace ivme {
namespace {

using namespace replay_test;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

// " at replay_refusals_test.cpp:87".
std::string at_line(int line) { return " at replay_refusals_test.cpp:" + std::to_string(line); }

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
  EXPECT_THAT(
      said,
      AllOf(HasSubstr("a tensor<f32> that it returns is kept by the program."),
            testing::ContainsRegex(
                "the result of 'aten::mean.dim' at replay_refusals_test.cpp:[0-9]+ is kept by the program")));
}

TEST(XlaReplay, optimizers_of_torch_are_refused_and_stay_right) {
  auto torch_adamw = [](const auto& parameters) {
    return std::make_shared<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2));
  };
  auto make_step = [](auto& a, auto& m, auto& o) { return plain_step(a, m, o); };
  CaptureStderr();
  Outcome run = train({.steps = 300}, torch_adamw, make_step);
  EXPECT_THAT(
      GetCapturedStderr(),
      testing::ContainsRegex("what AdamW counts from step to step is not known at replay_loop.h:[0-9]+. Use "
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
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("it sets a learning rate at replay_refusals_test.cpp:"),
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

TEST(XlaReplay, an_argument_that_counts_is_told_of) {
  Line line;
  auto step = line.accelerator.compile(
      [&](const at::Tensor& x, int count) { return line.model(x).sum() + count; }, soon);
  CaptureStderr();
  for (int i = 0; i < 80; ++i) EXPECT_EQ(value(step(line.x, i)), 10 + i);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("have had 64 different forms"));
}

TEST(XlaReplay, fewer_than_three_recorded_calls_are_refused) {
  Accelerator accelerator({.device = "xla"});
  EXPECT_THAT(test::message_of([&] { accelerator.compile([] {}, {.traced_calls = 2}); }),
              HasSubstr("It takes at least 3 to see what changes from call to call."));
}

}  // namespace
}  // namespace ivme
