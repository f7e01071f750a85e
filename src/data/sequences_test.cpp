#include "ivme/sequences.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/example.h>

#include <algorithm>
#include <set>

#include "data/loader_core.h"
#include "data/numbers.h"
#include "ivme/accelerator.h"
#include "ivme/seed.h"
#include "message_of.h"
#include "ranks.h"

namespace ivme {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t length_of(int64_t index) { return 1 + index * 7 % 30; }  // 1 to 30

std::vector<int64_t> lengths(int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(length_of(i));
  return all;
}

// Sample i is its number, repeated; its target is the same, or the number alone.
struct Texts {
  int64_t count;
  int64_t size() const { return count; }
  std::pair<at::Tensor, int64_t> get(size_t index) const {
    auto i = static_cast<int64_t>(index);
    return {at::full({length_of(i)}, i, at::kLong), i};
  }
};

auto loader_of(int64_t count, LoaderOptions options) {
  options.buckets = length_buckets({8, 20, 30}, lengths(count));
  return data_loader(Texts{count}, options, pad_to_bucket(*options.buckets));
}

template <class Loader>
std::vector<std::vector<int64_t>> epoch(const Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : loader) {
    const int64_t length = batch.data.size(1);
    EXPECT_TRUE(length == 8 || length == 20 || length == 30) << length;
    for (int64_t i = 0; i < batch.data.size(0); ++i) {
      const int64_t bound = length_of(batch.target[i].template item<int64_t>());
      EXPECT_EQ(batch.lengths[i].template item<int64_t>(), bound);
      EXPECT_GT(bound, length == 8 ? 0 : length == 20 ? 8 : 20);
      EXPECT_LE(bound, length);
    }
    batches.push_back(test::values(batch.target));
  }
  return batches;
}

TEST(LengthBuckets, batches_are_of_one_bucket_and_hold_every_sample_once) {
  for (bool shuffle : {false, true}) {
    set_seed(1);
    Accelerator accelerator;
    auto loader = accelerator.prepare(loader_of(100, {.batch_size = 8, .shuffle = shuffle}));
    auto first = epoch(loader), second = epoch(loader);
    EXPECT_EQ(loader.size(), static_cast<int64_t>(first.size()));
    auto all = test::joined(first);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, test::numbers_below(100));
    EXPECT_EQ(first == second, !shuffle);
    loader.set_epoch(0);
    EXPECT_EQ(epoch(loader), first);
    EXPECT_EQ(loader.remainder(), -1);
  }
}

// All ranks' batches of a step are of one bucket, as on a mesh they must be.
TEST(LengthBuckets, ranks_share_each_batch_and_see_as_many) {
  for (bool split : {false, true}) {
    auto plain = loader_of(100, {.batch_size = 4, .shuffle = true});
    std::vector<std::vector<std::vector<int64_t>>> ranks;
    for (int rank : {0, 1}) {
      DataLoader<SequenceBatch> loader(
          detail::share(*plain.core(),
                        {.num_processes = 2, .rank = rank, .split_batches = split, .data_seed = 3}),
          plain.fetch());
      ranks.push_back(epoch(loader));
      EXPECT_EQ(loader.size(), static_cast<int64_t>(ranks.back().size()));
    }
    ASSERT_EQ(ranks[0].size(), ranks[1].size());
    std::set<int64_t> seen;
    for (size_t step = 0; step < ranks[0].size(); ++step) {
      EXPECT_EQ(ranks[0][step].size(), split ? 2u : 4u);
      EXPECT_EQ(ranks[1][step].size(), split ? 2u : 4u);
      auto bucket = [](int64_t sample) {
        return length_of(sample) <= 8 ? 0 : length_of(sample) <= 20 ? 1 : 2;
      };
      EXPECT_EQ(bucket(ranks[0][step][0]), bucket(ranks[1][step][0]));
      for (int rank : {0, 1}) seen.insert(ranks[rank][step].begin(), ranks[rank][step].end());
    }
    EXPECT_EQ(seen.size(), 100u);
  }
}

TEST(LengthBuckets, two_ranks_see_in_a_step_what_one_sees_of_twice_the_batch) {
  auto batches = [](int ranks, int rank, int64_t batch_size) {
    auto plain = loader_of(96, {.batch_size = batch_size, .shuffle = true, .drop_last = true});
    return epoch(DataLoader<SequenceBatch>(
        detail::share(*plain.core(), {.num_processes = ranks, .rank = rank, .data_seed = 3}), plain.fetch()));
  };
  auto one = batches(1, 0, 8), first = batches(2, 0, 4), second = batches(2, 1, 4);
  ASSERT_EQ(one.size(), first.size());
  for (size_t step = 0; step < one.size(); ++step) {
    first[step].insert(first[step].end(), second[step].begin(), second[step].end());
    EXPECT_EQ(first[step], one[step]);
  }
}

TEST(LengthBuckets, uneven_ranks_together_see_every_sample_once) {
  std::vector<int64_t> all;
  for (int rank : {0, 1, 2}) {
    auto plain = loader_of(77, {.batch_size = 4});
    DataLoader<SequenceBatch> loader(
        detail::share(*plain.core(), {.num_processes = 3, .rank = rank, .even_batches = false}),
        plain.fetch());
    auto seen = test::joined(epoch(loader));
    all.insert(all.end(), seen.begin(), seen.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, test::numbers_below(77));
}

// Samples that complete a bucket's batch are cut wherever in the epoch that batch comes.
RANKS_TEST(2, LengthBuckets, metrics_of_several_ranks_count_every_sample_once) {
  Accelerator accelerator;
  set_seed(1);
  auto loader = accelerator.prepare(loader_of(77, {.batch_size = 4, .shuffle = true}));
  std::vector<int64_t> all;
  for (auto& batch : loader)
    for (int64_t sample : test::values(accelerator.gather_for_metrics(batch.target))) all.push_back(sample);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, test::numbers_below(77));
}

TEST(LengthBuckets, what_does_not_fit_is_refused_with_a_sentence) {
  EXPECT_THAT(
      message_of([] { length_buckets({16, 64}, {5, 80}); }),
      testing::AllOf(HasSubstr("Sample 1 has a length of 80"), HasSubstr("64"), HasSubstr("truncate")));
  for (const std::vector<int64_t>& bounds : {std::vector<int64_t>{}, {0, 4}, {8, 8}, {8, 4}})
    EXPECT_THAT(message_of([&] { length_buckets(bounds, {1}); }), HasSubstr("bounds {"));
  auto buckets = length_buckets({16}, {1, 2, 3});
  EXPECT_THAT(message_of([&] { data_loader(test::Numbers{4}, {.buckets = buckets}); }),
              testing::AllOf(HasSubstr("3 samples"), HasSubstr("dataset of 4")));
  EXPECT_THAT(message_of([&] {
                data_loader(test::Numbers{3}, {.shuffle = true, .num_samples = 2, .buckets = buckets});
              }),
              HasSubstr("num_samples"));
}

TEST(PadToBucket, rows_are_padded_to_the_bound_and_told_by_lengths_and_tokens) {
  auto collate = pad_to_bucket(length_buckets({4, 8}, {3, 6}), {.value = 9});
  auto batch = collate(std::vector<at::Tensor>{at::arange(3), at::arange(2)});
  EXPECT_TRUE(at::equal(batch.data, at::tensor({0, 1, 2, 9, 0, 1, 9, 9}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(batch.lengths, at::tensor({3, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.tokens, at::tensor({1, 1, 1, 0, 1, 1, 0, 0}).view({2, 4}).to(at::kBool)));
  EXPECT_FALSE(batch.target.defined());
  EXPECT_EQ(collate(std::vector<at::Tensor>{at::zeros({5, 2})}).data.sizes(),
            (std::vector<int64_t>{1, 8, 2}));
}

TEST(PadToBucket, targets_are_one_for_a_sample_or_one_for_each_token) {
  auto collate = pad_to_bucket(length_buckets({4}, {}));
  auto classes = collate(std::vector<std::pair<at::Tensor, int>>{{at::arange(3), 7}, {at::arange(1), 8}});
  EXPECT_TRUE(at::equal(classes.target, at::tensor({7, 8}, at::kLong)));
  using Pair = torch::data::Example<>;
  auto letters =
      collate(std::vector<Pair>{{at::arange(3), at::arange(3) + 1}, {at::arange(1), at::arange(1)}});
  EXPECT_TRUE(
      at::equal(letters.target, at::tensor({1, 2, 3, -100, 0, -100, -100, -100}, at::kLong).view({2, 4})));
  auto heights = collate(std::vector<Pair>{{at::arange(2), at::ones({2, 3})}});
  EXPECT_EQ(heights.target.sizes(), (std::vector<int64_t>{1, 4, 3}));
  EXPECT_EQ(heights.target.sum().item<float>(), 6);
  EXPECT_THAT(message_of([&] { collate(std::vector<Pair>{{at::arange(2), at::ones({3})}}); }),
              testing::AllOf(HasSubstr("2 tokens"), HasSubstr("[3]")));
}

TEST(PadToBucket, longer_samples_are_cut_if_that_was_asked_for_and_else_refused) {
  auto cut = pad_to_bucket(length_buckets({4}, {6}, {.truncate = true}));
  auto batch = cut(std::vector<std::pair<at::Tensor, at::Tensor>>{{at::arange(6), at::arange(6)}});
  EXPECT_TRUE(at::equal(batch.data, at::arange(4).view({1, 4})));
  EXPECT_TRUE(at::equal(batch.target, batch.data));
  EXPECT_EQ(batch.lengths.item<int64_t>(), 4);
  auto whole = pad_to_bucket(length_buckets({4}, {}));
  EXPECT_THAT(message_of([&] { whole(std::vector<at::Tensor>{at::arange(6)}); }), HasSubstr("length of 6"));
}

}  // namespace
}  // namespace ivme
