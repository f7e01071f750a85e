#include "data/starvation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ivme::detail {
namespace {

using std::chrono::milliseconds;

// Batches that take `wait` to come, and steps that take `work`.
struct Loop {
  Starvation starvation;
  Starvation::Time now{};
  int said = 0;
  std::string text;
  void run(int batches, milliseconds wait, milliseconds work) {
    for (int i = 0; i < batches; ++i) {
      const auto asked = now;
      now += wait;
      if (auto sentence = starvation.batch_came(asked, now)) ++said, text = *sentence;
      now += work;
    }
  }
};

TEST(Starvation, a_loop_that_mostly_waits_is_told_once_how_long) {
  Loop loop;
  loop.run(60, milliseconds(30), milliseconds(10));
  EXPECT_EQ(loop.said, 0);  // the first batch begins the first interval
  loop.run(1, milliseconds(30), milliseconds(10));
  EXPECT_EQ(loop.said, 1);
  EXPECT_THAT(loop.text, testing::HasSubstr("75 % of the time, 1.50 s of 2.00 s over 50 batches"));
  loop.run(500, milliseconds(30), milliseconds(10));
  EXPECT_EQ(loop.said, 1);
}

TEST(Starvation, a_loop_that_mostly_works_is_told_nothing) {
  Loop loop;
  loop.run(500, milliseconds(9), milliseconds(10));
  EXPECT_EQ(loop.said, 0);
}

TEST(Starvation, compilation_at_the_beginning_and_short_waits_do_not_count) {
  Loop loop;
  loop.run(10, milliseconds(5000), milliseconds(10));
  loop.run(200, milliseconds(1), milliseconds(10));
  EXPECT_EQ(loop.said, 0);
  Loop quick;
  quick.run(500, milliseconds(0), milliseconds(0));
  EXPECT_EQ(quick.said, 0);
}

TEST(Starvation, time_between_passes_is_nobodys) {
  Loop loop;
  for (int pass = 0; pass < 30; ++pass) {
    loop.starvation.pass_begins();
    loop.run(5, milliseconds(1), milliseconds(10));
    loop.now += milliseconds(10000);
  }
  EXPECT_EQ(loop.said, 0);
}

}  // namespace
}  // namespace ivme::detail
