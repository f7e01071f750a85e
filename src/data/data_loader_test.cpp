#include "ivme/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randperm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/loader_core.h"
#include "data/numbers.h"
#include "ivme/accelerator.h"
#include "ivme/seed.h"
#include "message_of.h"
#include "oracle.h"

namespace ivme {
namespace {

using test::Batches;
using test::epoch;
using test::joined;
using test::Numbers;
using test::numbers_below;
using testing::ElementsAre;
using testing::HasSubstr;

// What a rank of several would see, without the others.
template <class B>
DataLoader<B> as_rank(const DataLoader<B>& loader, const detail::Sharing& sharing) {
  return DataLoader<B>(detail::share(*loader.core(), sharing), loader.fetch());
}

using test::message_of;

TEST(SeedableSampler, every_recorded_order_of_accelerate_is_drawn) {
  int lines = 0;
  for (const auto& line : test::recorded("seedable")) {
    SCOPED_TRACE(line.dump().substr(0, 80));
    int64_t n = line["n"];
    LoaderOptions options{.batch_size = 10, .shuffle = true};
    if (line.contains("num_samples")) options.num_samples = line["num_samples"];
    auto loader = as_rank(data_loader(Numbers{n}, options), {.data_seed = line["seed"].get<uint64_t>()});
    loader.set_epoch(line["epoch"]);
    EXPECT_EQ(joined(epoch(loader)), line["order"].get<std::vector<int64_t>>());
    ++lines;
  }
  EXPECT_EQ(lines, 53);
}

TEST(Randperm, libtorch_permutes_as_the_recorded_python_does) {
  int lines = 0;
  for (const auto& line : test::recorded("randperm")) {
    auto generator = at::detail::createCPUGenerator(line["seed"].get<uint64_t>());
    EXPECT_EQ(test::values(at::randperm(line["n"].get<int64_t>(), generator, at::kLong)),
              line["order"].get<std::vector<int64_t>>());
    ++lines;
  }
  EXPECT_EQ(lines, 6);
}

TEST(DefaultSampler, one_process_draws_pythons_orders_epoch_by_epoch) {
  Accelerator accelerator({.sharing = {.use_seedable_sampler = false}});
  for (bool prepared : {false, true}) {
    set_seed(42);
    auto loader = data_loader(Numbers{8}, {.batch_size = 4, .shuffle = true});
    if (prepared) loader = accelerator.prepare(loader);
    EXPECT_THAT(joined(epoch(loader)), ElementsAre(0, 5, 1, 6, 3, 4, 2, 7));
    EXPECT_THAT(joined(epoch(loader)), ElementsAre(6, 3, 7, 4, 2, 0, 1, 5));
    EXPECT_THAT(joined(epoch(loader)), ElementsAre(4, 0, 6, 2, 3, 5, 1, 7));
  }
}

TEST(SeedableSampler, the_seed_of_set_seed_decides_the_order_and_data_seed_wins_over_it) {
  Accelerator accelerator;
  auto first_epoch = [&](Accelerator& a) {
    return joined(epoch(a.prepare(data_loader(Numbers{8}, {.batch_size = 4, .shuffle = true}))));
  };
  set_seed(42);
  EXPECT_THAT(first_epoch(accelerator), ElementsAre(6, 3, 0, 7, 2, 1, 4, 5));
  set_seed(7);
  EXPECT_NE(first_epoch(accelerator), (std::vector<int64_t>{6, 3, 0, 7, 2, 1, 4, 5}));
  Accelerator other({.sharing = {.data_seed = 42}});
  EXPECT_THAT(first_epoch(other), ElementsAre(6, 3, 0, 7, 2, 1, 4, 5));
}

TEST(SeedableSampler, epochs_differ_and_set_epoch_brings_any_of_them_back) {
  auto loader = as_rank(data_loader(Numbers{8}, {.batch_size = 4, .shuffle = true}), {.data_seed = 42});
  auto first = joined(epoch(loader)), second = joined(epoch(loader));
  EXPECT_THAT(first, ElementsAre(6, 3, 0, 7, 2, 1, 4, 5));
  EXPECT_THAT(second, ElementsAre(4, 5, 7, 1, 3, 2, 6, 0));
  for (int time = 0; time < 2; ++time) {
    loader.set_epoch(0);
    EXPECT_EQ(joined(epoch(loader)), first);
  }
  EXPECT_EQ(joined(epoch(loader)), second);
  loader.set_epoch(1);
  EXPECT_EQ(joined(epoch(loader)), second);
}

TEST(SeedableSampler, an_epoch_may_have_fewer_or_more_samples_than_the_dataset) {
  for (int64_t wanted : {3, 8, 13}) {
    auto loader = as_rank(data_loader(Numbers{8}, {.batch_size = 2, .shuffle = true, .num_samples = wanted}),
                          {.data_seed = 42});
    auto order = joined(epoch(loader));
    EXPECT_EQ(static_cast<int64_t>(order.size()), wanted);
    EXPECT_EQ(loader.size(), (wanted + 1) / 2);
    EXPECT_EQ(loader.dataset_size(), 8);
    std::vector<int64_t> permutation = {6, 3, 0, 7, 2, 1, 4, 5};
    permutation.resize(std::min<int64_t>(wanted, 8));
    order.resize(permutation.size());
    EXPECT_EQ(order, permutation);
  }
}

TEST(SeedableSampler, ranks_together_see_every_sample_in_an_order_that_changes_with_the_epoch) {
  auto plain = data_loader(Numbers{8}, {.batch_size = 2, .shuffle = true});
  std::vector<DataLoader<at::Tensor>> ranks;
  for (int rank : {0, 1})
    ranks.push_back(as_rank(plain, {.num_processes = 2, .rank = rank, .data_seed = 42}));
  std::vector<Batches> epochs_of_rank_0;
  for (int64_t e : {0, 1, 2, 1}) {
    for (auto& rank : ranks) rank.set_epoch(e);
    epochs_of_rank_0.push_back(epoch(ranks[0]));
    auto all = joined(epochs_of_rank_0.back()), others = joined(epoch(ranks[1]));
    all.insert(all.end(), others.begin(), others.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, numbers_below(8));
  }
  EXPECT_NE(epochs_of_rank_0[0], epochs_of_rank_0[1]);
  EXPECT_NE(epochs_of_rank_0[1], epochs_of_rank_0[2]);
  EXPECT_NE(epochs_of_rank_0[0], epochs_of_rank_0[2]);
  EXPECT_EQ(epochs_of_rank_0[1], epochs_of_rank_0[3]);
}

TEST(DataLoader, beginning_an_epoch_draws_one_number_as_pythons_does) {
  Accelerator accelerator;
  for (bool prepared : {false, true}) {
    set_seed(42);
    auto loader = data_loader(Numbers{8}, {.batch_size = 2});
    if (prepared) loader = accelerator.prepare(loader);
    auto batch = loader.begin();
    at::Tensor mask = at::dropout(at::ones({8}), 0.5, true).to(at::kLong);
    EXPECT_THAT(test::values(mask), ElementsAre(2, 2, 2, 0, 2, 0, 0, 2));
  }
}

TEST(DataLoader, one_batch_is_read_ahead_and_the_last_is_known_as_such) {
  struct Counting : Numbers {
    std::shared_ptr<int> reads = std::make_shared<int>(0);
    at::Tensor get_batch(const std::vector<int64_t>& indices) const {
      ++*reads;
      return Numbers::get_batch(indices);
    }
  };
  Counting dataset{Numbers{10}};
  auto loader = data_loader(dataset, {.batch_size = 4});
  EXPECT_EQ(*dataset.reads, 0);
  int seen = 0;
  for (auto& batch : loader) {
    (void)batch;
    ++seen;
    EXPECT_EQ(*dataset.reads, std::min(seen + 1, 3));
    EXPECT_EQ(loader.end_of_dataloader(), seen == 3);
  }
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(loader.end_of_dataloader());
}

TEST(DataLoader, an_early_break_repeats_the_order_and_gives_up_the_epochs_end) {
  Accelerator accelerator({.gradient_accumulation_steps = 3});
  auto loader = accelerator.prepare(data_loader(Numbers{9}, {.batch_size = 4, .shuffle = true}));
  Batches seen;
  for (auto& batch : loader) {
    seen.push_back(test::values(batch));
    if (loader.end_of_dataloader()) break;
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_FALSE(loader.end_of_dataloader());
  {
    auto scope = accelerator.accumulate();
    EXPECT_FALSE(accelerator.sync_gradients());  // no loader is active any more
  }
  EXPECT_EQ(epoch(loader), seen);
  EXPECT_NE(epoch(loader), seen);
}

TEST(DataLoader, the_innermost_of_nested_loops_is_asked_for_the_end) {
  Accelerator accelerator({.gradient_accumulation_steps = 100});
  auto [outer, inner] = accelerator.prepare(data_loader(Numbers{2}, {}), data_loader(Numbers{3}, {}));
  auto updates = [&] {
    auto scope = accelerator.accumulate();
    return accelerator.sync_gradients();
  };
  std::vector<bool> of_outer, of_inner;
  for (auto& a : outer) {
    (void)a;
    for (auto& b : inner) {
      (void)b;
      of_inner.push_back(updates());
    }
    of_outer.push_back(updates());
  }
  EXPECT_THAT(of_inner, ElementsAre(false, false, true, false, false, true));
  EXPECT_THAT(of_outer, ElementsAre(false, true));
}

TEST(DataLoader, an_order_with_an_index_that_the_dataset_does_not_have_is_refused) {
  for (int64_t wrong : {-1, 10}) {
    auto loader = data_loader(
        Numbers{10}, {.batch_size = 2, .order = [&](int64_t) { return std::vector<int64_t>{0, wrong}; }});
    EXPECT_THAT(message_of([&] { epoch(loader); }), HasSubstr("sample " + std::to_string(wrong)));
  }
}

TEST(DataLoader, an_empty_dataset_is_an_empty_loop) {
  Accelerator accelerator;
  auto loader = data_loader(Numbers{0}, {.batch_size = 4, .shuffle = true});
  EXPECT_EQ(loader.size(), 0);
  EXPECT_TRUE(epoch(loader).empty());
  EXPECT_TRUE(epoch(accelerator.prepare(loader)).empty());
}

struct ShareCase {
  bool split, even, drop;
  Batches rank_0, rank_1;
  int64_t remainder;
};

TEST(DataLoader, ranks_share_an_epoch_as_the_options_say) {
  const std::vector<ShareCase> cases = {
      {false, true, false, {{0, 1, 2, 3}, {8, 9, 0, 1}}, {{4, 5, 6, 7}, {2, 3, 4, 5}}, 2},
      {false, false, false, {{0, 1, 2, 3}, {8, 9}}, {{4, 5, 6, 7}}, 2},
      {false, true, true, {{0, 1, 2, 3}}, {{4, 5, 6, 7}}, -1},
      {true, true, false, {{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}, {0, 1}}, 2},
      {true, false, false, {{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}}, 2},
      {true, true, true, {{0, 1}, {4, 5}}, {{2, 3}, {6, 7}}, -1},
  };
  for (const ShareCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c.split << c.even << c.drop);
    for (int rank : {0, 1}) {
      auto loader =
          as_rank(data_loader(Numbers{10}, {.batch_size = 4, .drop_last = c.drop}),
                  {.num_processes = 2, .rank = rank, .split_batches = c.split, .even_batches = c.even});
      const Batches& expected = rank == 0 ? c.rank_0 : c.rank_1;
      EXPECT_EQ(epoch(loader), expected);
      EXPECT_EQ(loader.size(), static_cast<int64_t>(expected.size()));
      EXPECT_EQ(loader.remainder(), c.remainder);
      EXPECT_EQ(loader.global_batch_size(), c.split ? 4 : 8);
      EXPECT_EQ(loader.dataset_size(), 10);
    }
  }
}

TEST(DataLoader, size_is_the_number_of_batches_that_come) {
  for (int64_t n = 0; n < 30; ++n)
    for (bool split : {false, true})
      for (bool even : {false, true})
        for (bool drop : {false, true})
          for (int rank : {0, 1, 2}) {
            auto loader =
                as_rank(data_loader(Numbers{n}, {.batch_size = 3, .drop_last = drop}),
                        {.num_processes = 3, .rank = rank, .split_batches = split, .even_batches = even});
            ASSERT_EQ(loader.size(), static_cast<int64_t>(epoch(loader).size()))
                << n << split << even << drop << rank;
          }
}

TEST(DataLoader, an_order_of_ones_own_may_leave_samples_out_and_changes_with_the_epoch) {
  auto loader = data_loader(
      Numbers{10}, {.batch_size = 2, .order = [](int64_t e) { return std::vector<int64_t>{7 - e, 3, 9}; }});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(epoch(loader), (Batches{{7, 3}, {9}}));
  EXPECT_EQ(epoch(loader), (Batches{{6, 3}, {9}}));
  auto second =
      as_rank(data_loader(Numbers{10}, {.order = [](int64_t) { return std::vector<int64_t>{7, 3, 9}; }}),
              {.num_processes = 2, .rank = 1});
  EXPECT_EQ(epoch(second), (Batches{{3}, {7}}));
}

struct Given : BatchSampler {
  Batches list;
  std::optional<int64_t> size;
  Given(Batches b, std::optional<int64_t> s) : list(std::move(b)), size(s) {}
  Batches batches(int64_t) override { return list; }
  std::optional<int64_t> batch_size() const override { return size; }
};

DataLoader<at::Tensor> sampled(int64_t n, Batches batches, std::optional<int64_t> size = {}) {
  return data_loader(Numbers{n}, {.batch_sampler = std::make_shared<Given>(std::move(batches), size)});
}

TEST(BatchSampler, batches_of_varying_size_are_dealt_whole) {
  const Batches batches = {{0, 1}, {2, 3, 4}, {5}};
  EXPECT_EQ(epoch(sampled(6, batches)), batches);
  auto rank = [&](int r, bool even) {
    return as_rank(sampled(6, batches), {.num_processes = 2, .rank = r, .even_batches = even});
  };
  EXPECT_EQ(epoch(rank(0, true)), (Batches{{0, 1}, {5}}));
  EXPECT_EQ(epoch(rank(1, true)), (Batches{{2, 3, 4}, {0, 1}}));
  EXPECT_EQ(epoch(rank(1, false)), (Batches{{2, 3, 4}}));
  EXPECT_EQ(rank(1, false).size(), 1);
  EXPECT_EQ(rank(0, true).remainder(), -1);
  EXPECT_THAT(message_of([&] { rank(0, true).global_batch_size(); }), HasSubstr("varying size"));
}

TEST(BatchSampler, batches_of_a_known_size_are_shared_like_any_others) {
  auto plain = sampled(7, {{6, 5, 4, 3}, {2, 1, 0}}, 4);
  EXPECT_EQ(epoch(as_rank(plain, {.num_processes = 2, .rank = 1, .split_batches = true})),
            (Batches{{4, 3}, {0, 6}}));
  EXPECT_EQ(epoch(as_rank(plain, {.num_processes = 2, .rank = 1})), (Batches{{2, 1, 0, 6}}));
}

TEST(BatchSampler, a_batch_that_ranks_cannot_split_is_refused_naming_both_numbers) {
  auto plain = sampled(6, {{0, 1, 2, 3, 4, 5}}, 6);
  auto split = [&] { as_rank(plain, {.num_processes = 4, .split_batches = true}); };
  EXPECT_THAT(message_of(split), testing::AllOf(HasSubstr("6"), HasSubstr("4 processes")));
  auto varying = [&] { as_rank(sampled(3, {{0}, {1, 2}}), {.num_processes = 2, .split_batches = true}); };
  EXPECT_THAT(message_of(varying), HasSubstr("batch_size()"));
}

TEST(BatchSampler, batches_that_belie_their_size_are_refused) {
  EXPECT_THAT(message_of([] { epoch(sampled(5, {{0, 1}, {2}, {3, 4}}, 2)); }), HasSubstr("batch 1 has 1"));
}

TEST(DataLoader, impossible_options_are_refused_with_a_sentence) {
  EXPECT_THAT(message_of([] { data_loader(Numbers{4}, {.batch_size = 0}); }), HasSubstr("batch size of 0"));
  auto order = [](int64_t) { return std::vector<int64_t>{0}; };
  EXPECT_THAT(message_of([&] { data_loader(Numbers{4}, {.shuffle = true, .order = order}); }),
              HasSubstr("shuffle"));
  EXPECT_THAT(message_of([&] { data_loader(Numbers{4}, {.num_samples = 2}); }), HasSubstr("without shuffle"));
  EXPECT_THAT(message_of([&] { data_loader(Numbers{4}, {.shuffle = true, .num_samples = 0}); }),
              HasSubstr("at least 1"));
  auto sampler = std::make_shared<Given>(Batches{{0}}, std::nullopt);
  EXPECT_THAT(message_of([&] { data_loader(Numbers{4}, {.batch_size = 2, .batch_sampler = sampler}); }),
              HasSubstr("batch sampler"));
  struct Endless : Numbers {
    std::optional<size_t> size() const { return std::nullopt; }
  };
  EXPECT_THAT(message_of([] { data_loader(Endless{Numbers{4}}, {}); }), HasSubstr("size"));
  auto odd = [] {
    as_rank(data_loader(Numbers{4}, {.batch_size = 3}), {.num_processes = 2, .split_batches = true});
  };
  EXPECT_THAT(message_of(odd), testing::AllOf(HasSubstr("3"), HasSubstr("2 processes")));
}

}  // namespace
}  // namespace ivme
