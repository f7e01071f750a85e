#include "record/step_join.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace ivme::record {
namespace {

StepEntry entry(int64_t step, double loss, int optimizer = 0, int64_t samples = 10) {
  StepEntry e;
  e.step = step;
  e.loss = loss;
  e.optimizer = optimizer;
  e.samples = samples;
  return e;
}

// "optimizer.step=loss/samples" of all steps that are whole.
std::vector<std::string> drain(StepJoin& join) {
  std::vector<std::string> steps;
  while (const auto whole = join.next()) {
    const StepEntry& line = whole->line;
    char text[80];
    std::snprintf(text, sizeof text, "%d.%lld=%g/%lld", line.optimizer, static_cast<long long>(line.step),
                  line.loss, static_cast<long long>(line.samples));
    steps.push_back(text);
  }
  return steps;
}

using Steps = std::vector<std::string>;

TEST(StepJoin, a_step_waits_for_every_rank) {
  StepJoin join(2);
  join.add(0, entry(1, 1));
  join.add(0, entry(2, 2));
  EXPECT_EQ(drain(join), Steps{});
  join.add(1, entry(1, 3));
  EXPECT_EQ(drain(join), Steps{"0.1=2/20"});
  join.add(1, entry(2, 4));
  EXPECT_EQ(drain(join), Steps{"0.2=3/40"});
  EXPECT_FALSE(join.has_entries(0));
}

TEST(StepJoin, sums_what_is_a_sum_and_takes_the_rest_from_rank_0) {
  StepEntry a = entry(1, 1), b = entry(1, 2);
  a.order = ~0ULL;
  b.order = 3;
  a.lr = 0.5;
  b.lr = 9;
  a.grad_norm = 1.5;
  b.grad_norm = 9;
  a.seconds = 0.25;
  b.seconds = 9;
  b.param_norm = 9;
  a.update_norm = 4;
  b.tokens = 7;
  a.micro_losses = {1};
  b.micro_losses = {2};
  StepJoin join(2);
  join.add(1, b);
  join.add(0, a);
  const auto whole = join.next();
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->line.order, 2u);  // modulo 2^64
  EXPECT_EQ(whole->line.lr, 0.5);
  EXPECT_EQ(whole->line.grad_norm, 1.5);
  EXPECT_EQ(whole->line.seconds, 0.25);
  EXPECT_EQ(whole->line.param_norm, std::nullopt);
  EXPECT_EQ(whole->line.update_norm, 4);
  EXPECT_EQ(whole->line.tokens, 7);
  EXPECT_EQ(whole->micro_losses, (std::vector<std::vector<double>>{{1}, {2}}));
}

TEST(StepJoin, a_rank_that_ended_earlier_does_not_count_in_later_steps) {
  StepJoin join(3);
  for (int rank : {0, 1, 2}) join.add(rank, entry(1, rank));
  join.end(0);
  join.add(1, entry(2, 5));
  join.add(2, entry(2, 7));
  join.end(1);
  join.add(2, entry(3, 8));
  EXPECT_EQ(drain(join), (Steps{"0.1=1/30", "0.2=6/50", "0.3=8/60"}));
  EXPECT_FALSE(join.all_ended());
  join.end(2);
  EXPECT_TRUE(join.all_ended());
}

TEST(StepJoin, a_rank_that_skipped_a_step_does_not_count_in_it) {
  StepJoin join(2);
  join.add(0, entry(1, 1));
  join.add(0, entry(2, 2));
  join.add(0, entry(3, 3));
  join.add(1, entry(3, 5));
  EXPECT_EQ(drain(join), (Steps{"0.1=1/10", "0.2=2/20", "0.3=4/40"}));
  join.add(1, entry(4, 6));
  join.add(0, entry(5, 7));
  join.add(1, entry(5, 9));
  EXPECT_EQ(drain(join), (Steps{"0.4=6/50", "0.5=8/70"}));
}

TEST(StepJoin, steps_of_several_optimizers_keep_rank_0s_order_and_their_own_counts) {
  StepJoin join(2);
  for (int64_t step : {1, 2}) {
    join.add(0, entry(step, 1, 0));
    join.add(0, entry(step, 10, 1, 1));
    join.add(1, entry(step, 30, 1, 1));
    join.add(1, entry(step, 3, 0));
  }
  EXPECT_EQ(drain(join), (Steps{"0.1=2/20", "1.1=20/2", "0.2=2/40", "1.2=20/4"}));
}

TEST(StepJoin, a_step_whose_part_never_comes_is_never_whole) {
  StepJoin join(2);
  join.add(0, entry(1, 1));
  join.end(0);
  EXPECT_EQ(drain(join), Steps{});
  EXPECT_TRUE(join.has_entries(0));
}

TEST(Block, survives_the_board_bit_for_bit) {
  StepEntry e = entry(5, 0.1, 2, 64);
  e.lr = std::numeric_limits<double>::denorm_min();
  e.grad_norm = std::numeric_limits<double>::infinity();
  e.order = ~0ULL;
  e.tokens = -3;
  e.update_norm = 1.0 / 3;
  e.seconds = 1e300;
  e.micro_losses = {static_cast<double>(0.1f), -0.0};
  StepEntry bad = entry(6, std::numeric_limits<double>::quiet_NaN());
  const Block back = unpack(pack({{e, bad}, true}));
  EXPECT_TRUE(back.last);
  ASSERT_EQ(back.entries.size(), 2u);
  const StepEntry& b = back.entries[0];
  EXPECT_EQ(b.optimizer, 2);
  EXPECT_EQ(b.step, 5);
  EXPECT_EQ(b.samples, 64);
  EXPECT_EQ(b.loss, 0.1);
  EXPECT_EQ(b.lr, e.lr);
  EXPECT_EQ(b.grad_norm, e.grad_norm);
  EXPECT_EQ(b.order, ~0ULL);
  EXPECT_EQ(b.tokens, -3);
  EXPECT_EQ(b.param_norm, std::nullopt);
  EXPECT_EQ(b.update_norm, 1.0 / 3);
  EXPECT_EQ(b.seconds, 1e300);
  EXPECT_EQ(b.micro_losses, e.micro_losses);
  EXPECT_TRUE(std::signbit(b.micro_losses[1]));
  EXPECT_TRUE(std::isnan(back.entries[1].loss));
  EXPECT_FALSE(unpack(pack({})).last);
  EXPECT_ANY_THROW(unpack("not a block"));
}

}  // namespace
}  // namespace ivme::record
