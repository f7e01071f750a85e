#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/numbers.h"
#include "ivme/accelerator.h"
#include "ivme/seed.h"
#include "ranks.h"

namespace ivme {
namespace {

using test::Numbers;
using test::numbers_below;
using testing::ElementsAre;

// All samples of an epoch as gather_for_metrics collects them.
std::vector<int64_t> metrics(Accelerator& accelerator, int64_t n, int64_t batch_size) {
  auto loader = accelerator.prepare(data_loader(Numbers{n}, {.batch_size = batch_size}));
  std::vector<int64_t> all;
  for (auto& batch : loader)
    for (int64_t value : test::values(accelerator.gather_for_metrics(batch))) all.push_back(value);
  return all;
}

// An epoch's order before it was dealt to the ranks.
std::vector<int64_t> global_order(Accelerator& accelerator, const DataLoader<at::Tensor>& loader) {
  std::vector<int64_t> all;
  for (auto& batch : loader)
    for (int64_t value : test::values(accelerator.gather(batch))) all.push_back(value);
  return all;
}

RANKS_TEST(2, DefaultSampler, several_processes_share_rank_0s_generator_over_all_epochs) {
  Accelerator accelerator({.sharing = {.use_seedable_sampler = false}});
  set_seed(accelerator.is_main_process() ? 42 : 7);
  auto loader = accelerator.prepare(data_loader(Numbers{8}, {.batch_size = 4, .shuffle = true}));
  EXPECT_THAT(global_order(accelerator, loader), ElementsAre(0, 2, 6, 4, 3, 7, 1, 5));
  EXPECT_THAT(global_order(accelerator, loader), ElementsAre(5, 3, 1, 0, 4, 6, 7, 2));
  EXPECT_THAT(global_order(accelerator, loader), ElementsAre(6, 2, 5, 1, 0, 7, 3, 4));
}

RANKS_TEST(2, Samplers, the_order_follows_the_seed_on_several_processes) {
  for (bool seedable : {false, true}) {
    Accelerator accelerator({.sharing = {.use_seedable_sampler = seedable}});
    std::vector<std::vector<int64_t>> orders;
    for (uint64_t seed : {0, 1, 0}) {
      set_seed(seed);
      auto loader = accelerator.prepare(data_loader(Numbers{16}, {.batch_size = 4, .shuffle = true}));
      orders.push_back(global_order(accelerator, loader));
    }
    EXPECT_NE(orders[0], orders[1]);
    EXPECT_EQ(orders[0], orders[2]);
  }
}

RANKS_TEST(2, SeedableSampler, two_processes_share_the_order_that_one_has) {
  Accelerator accelerator;
  set_seed(42);
  auto loader = accelerator.prepare(data_loader(Numbers{8}, {.batch_size = 2, .shuffle = true}));
  EXPECT_THAT(global_order(accelerator, loader), ElementsAre(6, 3, 0, 7, 2, 1, 4, 5));
}

RANKS_TEST(3, GatherForMetrics, no_sample_is_counted_twice_though_ranks_do_not_divide_the_data) {
  Accelerator accelerator;
  EXPECT_EQ(metrics(accelerator, 22, 8), numbers_below(22));
  EXPECT_EQ(metrics(accelerator, 10000, 128), numbers_below(10000));
}

RANKS_TEST(2, GatherForMetrics, a_full_last_step_is_not_cut) {
  Accelerator accelerator;
  EXPECT_EQ(metrics(accelerator, 512, 16), numbers_below(512));
}

RANKS_TEST(4, GatherForMetrics, every_length_is_counted_exactly) {
  Accelerator accelerator;
  for (int64_t n = 1; n <= 130; ++n) {
    ASSERT_EQ(metrics(accelerator, n, 8), numbers_below(n));
    if (n > 26) continue;
    ASSERT_EQ(metrics(accelerator, n, 3), numbers_below(n));
    ASSERT_EQ(metrics(accelerator, n, 1), numbers_below(n));
  }
}

RANKS_TEST(2, GatherForMetrics, only_what_has_a_row_per_sample_is_cut) {
  Accelerator accelerator;
  auto loader = accelerator.prepare(data_loader(Numbers{33}, {.batch_size = 8}));
  for (auto& batch : loader) {
    auto [rows, vector, scalar] =
        accelerator.gather_for_metrics(std::tuple{batch, at::ones({4}), at::ones({})});
    EXPECT_EQ(rows.size(0), loader.end_of_dataloader() ? 1 : 16);
    EXPECT_EQ(vector.size(0), 8);
    EXPECT_EQ(scalar.size(0), 2);
  }
  EXPECT_EQ(accelerator.gather_for_metrics(at::ones({8})).size(0), 16);  // no loop, no epoch's end
}

RANKS_TEST(2, GatherForMetrics, nothing_is_cut_after_a_loop_that_was_left_at_its_last_batch) {
  Accelerator accelerator;
  auto loader = accelerator.prepare(data_loader(Numbers{33}, {.batch_size = 8}));
  for (auto& batch : loader) {
    (void)batch;
    if (loader.end_of_dataloader()) break;
  }
  EXPECT_EQ(accelerator.gather_for_metrics(at::ones({8})).size(0), 16);
}

RANKS_TEST(2, GatherForMetrics, strings_are_cut_as_tensors_are) {
  Accelerator accelerator;
  auto loader = accelerator.prepare(data_loader(Numbers{5}, {.batch_size = 2}));
  std::vector<std::string> all;
  for (auto& batch : loader) {
    std::vector<std::string> words;
    for (int64_t value : test::values(batch)) words.push_back("word" + std::to_string(value));
    for (auto& word : accelerator.gather_for_metrics(words)) all.push_back(word);
  }
  EXPECT_THAT(all, ElementsAre("word0", "word1", "word2", "word3", "word4"));
}

}  // namespace
}  // namespace ivme
