// Loaders that make batches ahead on a thread of their own; data/prefetch_test.cpp tests the thread.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "data/numbers.h"
#include "ivme/accelerator.h"
#include "ivme/seed.h"
#include "message_of.h"

namespace ivme {
namespace {

using test::Batches;
using test::epoch;
using test::Numbers;

struct Watched {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<double> drawn;
  int reads = 0;
  bool gradients = false;
};

// Numbers, and which thread reads them.
struct Watching : Numbers {
  std::shared_ptr<Watched> seen = std::make_shared<Watched>();
  bool draws = false;
  int damaged = -1;  // which read throws
  at::Tensor get_batch(const std::vector<int64_t>& indices) const {
    std::lock_guard lock(seen->mutex);
    seen->threads.insert(std::this_thread::get_id());
    seen->gradients = seen->gradients || at::GradMode::is_enabled();
    if (draws) seen->drawn.push_back(at::rand({}).item<double>());
    if (seen->reads++ == damaged)
      throw std::runtime_error("sample " + std::to_string(indices[0]) + " is damaged");
    return Numbers::get_batch(indices);
  }
};

TEST(Prefetching, batches_are_the_same_in_every_epoch_and_whatever_the_depth) {
  for (bool seedable : {true, false}) {
    std::vector<Batches> expected;
    for (int64_t depth : {0, 1, 3, 100}) {
      Accelerator accelerator({.sharing = {.use_seedable_sampler = seedable}});
      set_seed(5);
      auto loader = accelerator.prepare(
          data_loader(Numbers{103}, {.batch_size = 4, .shuffle = true, .prefetch = depth}));
      for (size_t pass = 0; pass < 3; ++pass) {
        auto batches = epoch(loader);
        if (depth == 0) expected.push_back(batches);
        EXPECT_EQ(batches, expected[pass]) << depth;
      }
      EXPECT_EQ(loader.size(), 26);
    }
  }
}

TEST(Prefetching, the_last_batch_is_known_as_such) {
  auto loader = data_loader(Numbers{10}, {.batch_size = 4, .prefetch = 2});
  std::vector<bool> last;
  for (auto& batch : loader) last.push_back((void(batch), loader.end_of_dataloader()));
  EXPECT_THAT(last, testing::ElementsAre(false, false, true));
}

TEST(Prefetching, another_thread_reads_as_the_loops_would) {
  Watching dataset{Numbers{40}};
  at::NoGradGuard none;
  for (auto& batch : data_loader(dataset, {.batch_size = 4, .prefetch = 2})) (void)batch;
  EXPECT_EQ(dataset.seen->threads.size(), 2u);
  EXPECT_FALSE(dataset.seen->gradients);
}

// The loop draws as well: what each of them gets depends on who comes first.
TEST(Prefetching, a_dataset_that_draws_random_numbers_is_read_by_the_loops_thread) {
  std::vector<double> expected;
  for (int64_t depth : {0, 2}) {
    Watching dataset{Numbers{40}};
    dataset.draws = true;
    at::manual_seed(3);
    std::vector<double> drawn;
    for (auto& batch : data_loader(dataset, {.batch_size = 4, .shuffle = true, .prefetch = depth})) {
      (void)batch;
      drawn.push_back(at::rand({}).item<double>());
    }
    drawn.insert(drawn.end(), dataset.seen->drawn.begin(), dataset.seen->drawn.end());
    if (depth == 0) expected = drawn;
    EXPECT_EQ(drawn, expected);
    EXPECT_EQ(dataset.seen->threads, std::set{std::this_thread::get_id()});
  }
}

TEST(Prefetching, what_reading_throws_reaches_the_loop_after_the_batches_before_it) {
  Watching dataset{Numbers{40}};
  dataset.damaged = 5;
  int seen = 0;
  try {
    for (auto& batch : data_loader(dataset, {.batch_size = 4, .prefetch = 2})) seen += batch.defined();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(), "sample 20 is damaged");
  }
  EXPECT_EQ(seen, 5);
}

TEST(Prefetching, a_loop_may_be_left_at_any_moment) {
  Watching dataset{Numbers{40}};
  Accelerator accelerator;
  auto loader = accelerator.prepare(data_loader(dataset, {.batch_size = 4, .shuffle = true, .prefetch = 3}));
  Batches whole;
  for (int steps = 0; steps < 11; ++steps) {
    Batches part;
    for (auto& batch : loader) {
      part.push_back(test::values(batch));
      if (static_cast<int>(part.size()) > steps) break;
    }
    if (steps == 0) whole = part;
    EXPECT_EQ(part[0], whole[0]) << steps;  // an epoch that was left comes again
    try {
      for (auto& batch : loader) throw std::runtime_error(std::to_string(batch.size(0)));
    } catch (const std::runtime_error&) {
    }
    loader.set_epoch(0);
  }
  const int reads = dataset.seen->reads;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset.seen->reads, reads);  // nobody is left who reads
}

TEST(Prefetching, a_negative_depth_is_refused) {
  EXPECT_THAT(test::message_of([] { data_loader(Numbers{4}, {.prefetch = -1}); }),
              testing::HasSubstr("prefetch -1"));
}

}  // namespace
}  // namespace ivme
