#include "data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace ivme::detail {
namespace {

// 0, 1, ..., end - 1
std::function<Prefetch::Item()> numbers_to(int end, std::atomic<int>& calls) {
  return [end, next = 0, &calls]() mutable -> Prefetch::Item {
    ++calls;
    if (next == end) return nullptr;
    return std::make_shared<int>(next++);
  };
}

int number(const Prefetch::Item& item) { return *std::static_pointer_cast<int>(item); }

template <class Done>
void wait_until(Done done) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(done());
}

TEST(Prefetch, everything_comes_once_and_in_order) {
  for (size_t depth : {1, 2, 7, 1000}) {
    std::atomic<int> calls = 0;
    Prefetch prefetch(numbers_to(500, calls), depth);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(number(prefetch.take()), i) << depth;
    EXPECT_EQ(prefetch.take(), nullptr);
    EXPECT_EQ(prefetch.take(), nullptr);
    EXPECT_EQ(calls, 501);
  }
}

TEST(Prefetch, no_more_than_depth_are_made_ahead) {
  std::atomic<int> calls = 0;
  Prefetch prefetch(numbers_to(100, calls), 3);
  for (int taken = 0; taken < 10; ++taken) {
    wait_until([&] { return calls == taken + 3; });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(calls, taken + 3);
    prefetch.take();
  }
}

TEST(Prefetch, a_failure_is_thrown_in_its_place_and_ends_the_making) {
  std::atomic<int> calls = 0;
  Prefetch prefetch(
      [&]() -> Prefetch::Item {
        if (++calls == 3) throw std::runtime_error("batch 2 is damaged");
        return std::make_shared<int>(calls - 1);
      },
      5);
  EXPECT_EQ(number(prefetch.take()), 0);
  EXPECT_EQ(number(prefetch.take()), 1);
  try {
    prefetch.take();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(), "batch 2 is damaged");
  }
  EXPECT_EQ(prefetch.take(), nullptr);
  EXPECT_EQ(calls, 3);
}

TEST(Prefetch, the_end_waits_for_a_call_under_way_and_drops_what_nobody_took) {
  std::atomic<int> begun = 0, ended = 0;
  std::weak_ptr<void> made;
  {
    Prefetch prefetch(
        [&]() -> Prefetch::Item {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          auto item = std::make_shared<int>(0);
          made = item;
          ++ended;
          return item;
        },
        4);
    wait_until([&] { return begun >= 2; });
  }
  EXPECT_EQ(begun, ended);
  EXPECT_TRUE(made.expired());
}

TEST(Prefetch, ending_at_any_moment_is_safe) {
  for (int taken = 0; taken < 50; ++taken) {
    std::atomic<int> calls = 0;
    Prefetch prefetch(numbers_to(40, calls), 1 + taken % 3);
    for (int i = 0; i < taken; ++i) {
      auto item = prefetch.take();
      ASSERT_EQ(item == nullptr, i >= 40);
    }
  }
}

}  // namespace
}  // namespace ivme::detail
