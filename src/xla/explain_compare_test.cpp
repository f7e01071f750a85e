#include "xla/explain_compare.h"

#include <ctime>

#include "xla/explain_fixture.h"

namespace ivme::xla {
namespace {

using namespace explain_fixture;

TEST_F(Explain, it_compares_with_the_program_that_is_most_like_it) {
  auto training = [&](int64_t rows, bool branch) {
    const Value x = input("data", {rows, 4});
    return program({multiply(branch ? tanh(relu(x)) : relu(x), x)});
  };
  EXPECT_EQ(explained({training(32, false), training(64, false), program({expand(input("", {3}), {2, 3})})},
                      training(32, true)),
            "after 1 equal operation, 'aten::tanh' (operation 2 of 3) is recorded now and was not before." +
                branch_advice);
}

TEST_F(Explain, of_programs_that_are_as_like_it_compares_with_the_latest) {
  const Value x = input("data", {2, 3});
  auto step = [&](double exponent) { return program({power(x, real(exponent))}); };
  EXPECT_EQ(explained({step(2), step(3), step(4)}, step(5)),
            "the 2nd argument of 'aten::pow.Tensor_Scalar' (operation 1 of 1) is 5.0 where it was 4.0." +
                argument_advice);
}

TEST_F(Explain, a_loop_that_runs_longer_is_told_by_its_block) {
  const Value data = input("data", {4, 4}), weight = input("parameter 0.weight", {4, 4});
  auto step = [&](int64_t times) { return program({mm(steps(times, mm(data, weight)), weight)}); };
  EXPECT_EQ(
      explained({step(16)}, step(17)),
      "a block of 3 operations is repeated 17 times instead of 16: a loop whose length is not the same in "
      "every step." +
          loop_advice);
  EXPECT_EQ(
      explained({step(16)}, step(3)),
      "a block of 3 operations is repeated 3 times instead of 16: a loop whose length is not the same in "
      "every step." +
          loop_advice);
}

TEST_F(Explain, a_loop_with_a_backward_pass_is_told_by_its_forward_block) {
  auto step = [&](int64_t times) {
    Value x = input("data", {4, 4});
    for (int64_t i = 0; i < times; ++i) x = tanh(mm(x, x));
    x = relu(x);
    for (int64_t i = 0; i < times; ++i) x = multiply(mm(x, x), x);
    return program({x});
  };
  EXPECT_EQ(
      explained({step(5)}, step(7)),
      "a block of 2 operations is repeated 7 times instead of 5: a loop whose length is not the same in "
      "every step." +
          loop_advice);
}

TEST_F(Explain, a_loop_over_an_input_is_told_by_the_input) {
  auto step = [&](int64_t length) {
    const Value text = input("text", {4, length});
    return program({mm(input("parameter 0.weight", {4, 4}), steps(length, text))});
  };
  EXPECT_EQ(
      explained({step(16), step(64)}, step(17)),
      "input 'text' has size 17 in dimension 1 where it had 16 or 64; a block of 3 operations is repeated 17 "
      "times instead of 16." +
          bucket_advice);
}

TEST(FindRepetition, counts_blocks_as_they_were_laid) {
  // `block` after `before`, so many times, then `after`; values that lead in and out are not the block's.
  auto laid = [](std::vector<size_t> before, const std::vector<size_t>& block, int times,
                 const std::vector<size_t>& after) {
    for (int i = 0; i < times; ++i) before.insert(before.end(), block.begin(), block.end());
    before.insert(before.end(), after.begin(), after.end());
    return before;
  };
  const std::vector<std::vector<size_t>> blocks = {
      {1}, {1, 2}, {1, 1, 2}, {1, 1, 1, 2}, {1, 2, 1, 3}, {1, 1, 2, 1, 1, 3}, {1, 2, 3, 4, 5, 6, 7}};
  for (const auto& block : blocks) {
    for (int shorter = 4; shorter < 20; shorter += 3) {
      for (int more = 1; more < 5; ++more) {
        for (const std::vector<size_t>& after : {std::vector<size_t>{}, {9}, {8, 8, 8, 1, 1, 2}}) {
          const auto a = laid({9, 8}, block, shorter + more, after), b = laid({9, 8}, block, shorter, after);
          const auto parting = std::mismatch(b.begin(), b.end(), a.begin()).first - b.begin();
          const auto found = find_repetition(a, b, static_cast<size_t>(parting));
          ASSERT_TRUE(found);
          EXPECT_EQ(found->block, block.size());
          EXPECT_EQ(found->longer, static_cast<size_t>(shorter + more));
          EXPECT_EQ(found->shorter, static_cast<size_t>(shorter));
        }
      }
    }
  }
}

TEST(FindRepetition, what_is_no_loop_is_not_found) {
  EXPECT_FALSE(find_repetition({1, 2, 3, 4}, {1, 2, 3, 4}, 4));              // nothing is repeated more often
  EXPECT_FALSE(find_repetition({1, 2, 3, 4, 5}, {1, 2, 3, 4}, 4));           // something else follows
  EXPECT_FALSE(find_repetition({1, 2, 3, 4, 1, 2, 3, 4}, {1, 2, 3, 4}, 4));  // once is no loop
  EXPECT_FALSE(find_repetition({7, 1, 1, 1, 8}, {7, 1, 1, 8}, 3));           // too short to be sure
  EXPECT_FALSE(find_repetition({1, 2, 1, 2, 1, 2, 1, 9}, {1, 2, 1, 2, 9}, 4));  // half a block more
  EXPECT_FALSE(find_repetition({1, 2, 1, 2, 1, 2, 8}, {1, 2, 1, 2, 9}, 4));     // goes on otherwise
}

TEST_F(Explain, two_hundred_thousand_operations_take_well_under_a_second) {
  auto chain = [&](int64_t length, int64_t rows) {
    const Value data = input("data", {rows, 4});
    Value x = data;
    for (int64_t i = 0; i < length; ++i) x = multiply(x, data);
    return program({relu(x)});
  };
  const ProgramSummary a = chain(200'000, 8), b = chain(199'000, 8), c = chain(200'000, 16);
  const ProgramSummary now = chain(200'000, 32);
  const std::clock_t start = std::clock();
  EXPECT_EQ(explained({a, b, c}, now), "input 'data' has 32 rows where it had 8 or 16." + bucket_advice);
  EXPECT_EQ(
      explained({b}, a),
      "a block of 1 operation is repeated 200000 times instead of 199000: a loop whose length is not the "
      "same in every step." +
          loop_advice);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0.5);  // of two
}

}  // namespace
}  // namespace ivme::xla
