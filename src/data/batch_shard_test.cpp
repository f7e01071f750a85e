#include "data/batch_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "ivme/error.h"
#include "oracle.h"

namespace ivme {
namespace {

using Batches = std::vector<std::vector<int64_t>>;
using test::recorded;

std::vector<Batches> shards(const ShardOptions& options) {
  std::vector<Batches> ranks(options.num_processes);
  for (int rank = 0; rank < options.num_processes; ++rank) {
    const BatchShard shard(options, rank);
    for (int64_t k = 0; k < shard.size(); ++k) ranks[rank].push_back(shard.positions(k));
  }
  return ranks;
}

// What gather_for_metrics over an epoch collects: step by step the ranks' samples, the last step cut.
std::vector<int64_t> gathered(const ShardOptions& options) {
  const auto ranks = shards(options);
  std::vector<int64_t> all;
  for (size_t k = 0; k < ranks[0].size(); ++k) {
    std::vector<int64_t> step;
    for (const auto& rank : ranks) {
      if (k < rank.size()) step.insert(step.end(), rank[k].begin(), rank[k].end());
    }
    if (k + 1 == ranks[0].size() && remainder(options) > 0) step.resize(remainder(options));
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

std::vector<int64_t> numbers_below(int64_t n) {
  std::vector<int64_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

ShardOptions options_of(const nlohmann::json& line) {
  return {.length = line["n"],
          .batch_size = line["bs"],
          .num_processes = line["np"],
          .split_batches = line["split"],
          .even_batches = line["even"],
          .drop_last = line["drop_last"],
          .complete_on_one_process = true};
}

TEST(BatchShard, every_recorded_line_of_accelerate_is_met_without_a_departure) {
  int compared = 0, metrics = 0, errors = 0;
  for (const auto& line : recorded("batch_sampler")) {
    SCOPED_TRACE(line.dump().substr(0, 200));
    const auto options = options_of(line);
    if (line.contains("error")) {
      EXPECT_THROW(BatchShard(options, 0), Error);
      ++errors;
      continue;
    }
    ++compared;
    EXPECT_EQ(shards(options), line["ranks"].get<std::vector<Batches>>());
    EXPECT_EQ(remainder(options), line["remainder"].get<int64_t>());
    EXPECT_EQ(global_batch_size(options), line["tbs"].get<int64_t>());
    if (line["gfm"].is_array()) {  // uneven ranks have none: gather would wait for ever
      ++metrics;
      EXPECT_EQ(gathered(options), line["gfm"].get<std::vector<int64_t>>());
    }
  }
  EXPECT_EQ(compared, 872);
  EXPECT_EQ(metrics, 760);
  EXPECT_EQ(errors, 4);
}

TEST(BatchShard, batches_of_varying_sizes_are_dealt_as_accelerate_deals_them) {
  int compared = 0;
  for (const auto& line : recorded("varying")) {
    SCOPED_TRACE(line.dump());
    Batches batches;
    int64_t next = 0;
    for (int64_t size : line["sizes"]) {
      batches.emplace_back(size);
      for (auto& index : batches.back()) index = next++;
    }
    for (int rank = 0; rank < line["np"].get<int>(); ++rank) {
      Batches seen;
      for (int64_t b : varying_batches_of_rank(batches.size(), line["np"], rank, line["even"], false)) {
        seen.push_back(batches[b]);
      }
      EXPECT_EQ(seen, line["ranks"][rank].get<Batches>());
      ++compared;
    }
  }
  EXPECT_EQ(compared, 63);
}

TEST(BatchShard, varying_batches_under_drop_last_end_with_the_last_whole_turn) {
  EXPECT_THAT(varying_batches_of_rank(5, 2, 0, true, true), testing::ElementsAre(0, 2));
  EXPECT_THAT(varying_batches_of_rank(5, 2, 1, true, true), testing::ElementsAre(1, 3));
}

TEST(BatchShard, one_process_keeps_plain_batches_with_a_short_last_one) {
  for (bool split : {false, true}) {
    const ShardOptions options{.length = 5, .batch_size = 2, .split_batches = split};
    EXPECT_EQ(shards(options)[0], (Batches{{0, 1}, {2, 3}, {4}}));
  }
}

TEST(BatchShard, metrics_see_each_sample_once_though_ranks_do_not_divide_the_data) {
  EXPECT_EQ(gathered({.length = 22, .batch_size = 8, .num_processes = 3}), numbers_below(22));
  EXPECT_EQ(gathered({.length = 10000, .batch_size = 128, .num_processes = 3}), numbers_below(10000));
}

TEST(BatchShard, a_full_last_step_is_not_cut) {
  const ShardOptions options{.length = 512, .batch_size = 16, .num_processes = 2};
  EXPECT_EQ(remainder(options), 0);
  EXPECT_EQ(gathered(options), numbers_below(512));
}

TEST(BatchShard, metrics_count_every_length_batch_size_and_number_of_ranks_exactly) {
  for (int64_t n = 1; n <= 130; ++n) {
    for (int64_t batch_size : {1, 3, 8}) {
      for (int processes : {1, 2, 3, 4}) {
        const ShardOptions options{.length = n, .batch_size = batch_size, .num_processes = processes};
        ASSERT_EQ(gathered(options), numbers_below(n)) << n << " " << batch_size << " " << processes;
      }
    }
  }
}

TEST(BatchShard, size_counts_the_batches_with_and_without_split_batches) {
  ShardOptions options{.length = 10, .batch_size = 4, .num_processes = 2};
  EXPECT_EQ(BatchShard(options, 0).size(), 2);
  options.split_batches = true;
  EXPECT_EQ(BatchShard(options, 0).size(), 3);
  options.drop_last = true;
  EXPECT_EQ(BatchShard(options, 0).size(), 2);
  options.split_batches = false;
  EXPECT_EQ(BatchShard(options, 0).size(), 1);
}

TEST(BatchShard, a_rank_for_which_uneven_splitting_leaves_nothing_has_a_batch_less_not_an_empty_one) {
  const ShardOptions options{
      .length = 9, .batch_size = 4, .num_processes = 2, .split_batches = true, .even_batches = false};
  EXPECT_EQ(shards(options), (std::vector<Batches>{{{0, 1}, {4, 5}, {8}}, {{2, 3}, {6, 7}}}));
}

TEST(BatchShard, uneven_ranks_together_see_every_sample_once) {
  for (bool split : {false, true}) {
    for (int64_t n = 0; n < 60; ++n) {
      std::vector<int64_t> seen;
      for (const auto& rank : shards({.length = n,
                                      .batch_size = 6,
                                      .num_processes = 3,
                                      .split_batches = split,
                                      .even_batches = false})) {
        for (const auto& batch : rank) seen.insert(seen.end(), batch.begin(), batch.end());
      }
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(seen, numbers_below(n));
    }
  }
}

TEST(BatchShard, an_indivisible_batch_size_is_refused_naming_both_numbers) {
  const ShardOptions options{.length = 100, .batch_size = 6, .num_processes = 4, .split_batches = true};
  try {
    BatchShard(options, 0);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("batch size of 6"), testing::HasSubstr("4 processes")));
  }
}

TEST(BatchShard, impossible_numbers_are_refused) {
  EXPECT_THROW(BatchShard({.length = 8, .batch_size = 0}, 0), Error);
  EXPECT_THROW(BatchShard({.length = 8, .batch_size = 1, .num_processes = 0}, 0), Error);
  EXPECT_THROW(BatchShard({.length = -1}, 0), Error);
  EXPECT_THROW(BatchShard({.length = 8, .num_processes = 2}, 2), Error);
  EXPECT_THROW(BatchShard({.length = 8, .batch_size = INT64_MAX / 2, .num_processes = 3}, 0), Error);
  EXPECT_THROW(BatchShard({.length = 8}, 0).positions(8), Error);
}

TEST(LastBatch, is_what_workers_shapes_and_batch_norm_ask_for) {
  EXPECT_EQ(last_batch({}), LastBatch::left_short);
  EXPECT_EQ(last_batch({.workers = 2}), LastBatch::completed);
  EXPECT_EQ(last_batch({.workers = 2, .even_batches = false}), LastBatch::left_short);
  EXPECT_EQ(last_batch({.batch_norm_in_training = true}), LastBatch::left_short);
  EXPECT_EQ(last_batch({.one_shape = true}), LastBatch::padded);
  EXPECT_EQ(last_batch({.one_shape = true, .even_batches = false}), LastBatch::padded);
  EXPECT_EQ(last_batch({.one_shape = true, .workers = 2}), LastBatch::completed);
  EXPECT_EQ(last_batch({.one_shape = true, .workers = 2, .even_batches = false}), LastBatch::padded);
  EXPECT_EQ(last_batch({.one_shape = true, .batch_norm_in_training = true}), LastBatch::completed);
  EXPECT_EQ(last_batch({.one_shape = true, .may_pad = false}), LastBatch::completed);
}

TEST(BatchShard, any_batch_of_a_huge_epoch_is_found_at_once) {
  const BatchShard shard({.length = INT64_C(1) << 50, .batch_size = 4, .num_processes = 4}, 3);
  EXPECT_EQ(shard.size(), INT64_C(1) << 46);
  EXPECT_EQ(shard.positions(shard.size() - 1).back(), (INT64_C(1) << 50) - 1);
}

}  // namespace
}  // namespace ivme
