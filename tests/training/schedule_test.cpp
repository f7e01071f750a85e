#include "ivme/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "ranks.h"
#include "training/loop.h"

namespace ivme {
namespace {

using test::Ramp;
using test::Scale;
using testing::ElementsAre;

// Learning rates after each micro-batch, of a schedule that falls by 1/16 with each of its steps.
std::vector<double> rates(const AcceleratorOptions& options, int64_t samples, int64_t batch_size) {
  Accelerator accelerator(options);
  Scale net;
  optim::SGD sgd(net->parameters(), {.lr = 1});
  auto falling = optim::lambda(sgd, [](int64_t step) { return 1 - static_cast<double>(step) / 16; });
  auto [schedule, model, optimizer, loader] =
      accelerator.prepare(falling, net, sgd, data_loader(Ramp{samples}, {.batch_size = batch_size}));
  std::vector<double> seen;
  for (auto& x : loader) {
    auto scope = accelerator.accumulate(model);
    accelerator.backward(model(x).sum());
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
    EXPECT_EQ(schedule.lr(), optimizer.lr());
    seen.push_back(schedule.lr());
  }
  return seen;
}

TEST(PreparedSchedule, one_process_steps_once_per_update) {
  EXPECT_THAT(rates({}, 4, 1), ElementsAre(0.9375, 0.875, 0.8125, 0.75));
}

RANKS_TEST(2, PreparedSchedule, two_processes_step_twice_per_update) {
  EXPECT_THAT(rates({}, 8, 1), ElementsAre(0.875, 0.75, 0.625, 0.5));
}

RANKS_TEST(2, PreparedSchedule, split_batches_steps_once_per_update) {
  EXPECT_THAT(rates({.sharing = {.split_batches = true}}, 8, 2), ElementsAre(0.9375, 0.875, 0.8125, 0.75));
}

TEST(PreparedSchedule, micro_batches_without_an_update_do_not_step) {
  EXPECT_THAT(rates({.gradient_accumulation_steps = 2}, 5, 1), ElementsAre(1, 0.9375, 0.9375, 0.875, 0.8125));
  EXPECT_EQ(rates({.gradient_accumulation_steps = 2}, 4, 1).back(), 1 - 2.0 / 16);
}

RANKS_TEST(2, PreparedSchedule, two_processes_that_accumulate_step_twice_per_update) {
  EXPECT_THAT(rates({.gradient_accumulation_steps = 2}, 10, 1), ElementsAre(1, 0.875, 0.875, 0.75, 0.625));
}

TEST(PreparedSchedule, on_its_own_it_steps_with_every_call) {
  AcceleratorOptions options{.gradient_accumulation_steps = 2, .step_scheduler_with_optimizer = false};
  EXPECT_THAT(rates(options, 4, 1), ElementsAre(0.9375, 0.875, 0.8125, 0.75));
}

// In how many calls of a prepared schedule a StepLR(20) lowers the rate.
int calls_until_it_falls(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  Scale net;
  optim::SGD sgd(net->parameters(), {.lr = 1});
  auto [optimizer, schedule] = accelerator.prepare(sgd, optim::step_decay(sgd, {.step_size = 20}));
  int calls = 0;
  while (optimizer.lr() == 1 && calls < 100) {
    optimizer.step();
    schedule.step();
    ++calls;
  }
  EXPECT_NEAR(optimizer.lr(), 0.1, 1e-12);
  return calls;
}

RANKS_TEST(4, PreparedSchedule, a_step_size_counts_the_batches_of_a_single_process) {
  EXPECT_EQ(calls_until_it_falls({}), 5);
  EXPECT_EQ(calls_until_it_falls({.sharing = {.split_batches = true}}), 20);
  EXPECT_EQ(calls_until_it_falls({.step_scheduler_with_optimizer = false}), 20);
}

TEST(PreparedSchedule, a_warm_up_and_its_total_end_where_they_would_in_one_process) {
  Accelerator accelerator;
  Scale net;
  optim::SGD sgd(net->parameters(), {.lr = 1});
  auto schedule = accelerator.prepare(optim::linear_with_warmup(sgd, {.warmup_steps = 2, .total_steps = 4}));
  std::vector<double> seen = {schedule.lr()};
  for (int i = 0; i < 5; ++i) {
    schedule.step();
    seen.push_back(schedule.lr());
  }
  EXPECT_THAT(seen, ElementsAre(0, 0.5, 1, 0.5, 0, 0));
  EXPECT_EQ(schedule.last_epoch(), 5);
  EXPECT_EQ(schedule.unwrap().total_steps(), 4);
}

RANKS_TEST(2, PreparedSchedule, torchs_schedulers_step_with_the_processes_too) {
  Accelerator accelerator;
  Scale net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1.0));
  torch::optim::StepLR halving(sgd, 1, 0.5);
  auto [optimizer, schedule] = accelerator.prepare(sgd, halving);
  std::vector<double> seen;
  for (int i = 0; i < 3; ++i) {
    optimizer.step();
    schedule.step();
    EXPECT_EQ(schedule.lr(), optimizer.lr());
    seen.push_back(optimizer.lr());
  }
  EXPECT_EQ(schedule.last_epoch(), 6);
  EXPECT_THAT(seen, ElementsAre(0.5, 0.125, 0.03125));  // torch's first step lowers nothing
}

}  // namespace
}  // namespace ivme
