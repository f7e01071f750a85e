// The lines of the user's program in explanations, and when they are taken.
#include "ivme/error.h"
#include "xla/explain_fixture.h"
#include "xla/programs.h"

namespace ivme::xla {
namespace {

using namespace explain_fixture;

std::string at_line(int line) { return " at explain_lines_test.cpp:" + std::to_string(line); }

// Nodes made in `make` come from the line of this macro.
#define RECORDED(make) (static_cast<void>(SiteOfNodes(CallSite::here())), make)

TEST_F(Explain, nodes_know_the_line_that_recorded_them) {
  const Value a = input("data", {2, 3});
  EXPECT_EQ(line_of(*relu(a).node), "");
  EXPECT_EQ(described_at(*relu(a).node), "'aten::relu'");
  const Value b = RECORDED(scale(a, make_number(Dtype::f32, 0.5)));
  EXPECT_EQ(" at " + line_of(*b.node), at_line(__LINE__ - 1));
  EXPECT_EQ(described_at(*b.node), "'aten::mul.Scalar'" + at_line(__LINE__ - 2));
  EXPECT_EQ(described_at(*b.node->operands[1].node), "a number" + at_line(__LINE__ - 3));
  EXPECT_EQ(described_at(*a.node), "an input");
}

TEST_F(Explain, of_nested_sites_the_outer_one_counts) {
  const Value a = input("data", {2, 3});
  const Value b = RECORDED(RECORDED(relu(a)));
  EXPECT_EQ(" at " + line_of(*b.node), at_line(__LINE__ - 1));
  EXPECT_FALSE(SiteOfNodes::current());
}

TEST_F(Explain, a_line_is_no_part_of_the_program) {
  const Value a = input("data", {2, 3});
  const Value here = RECORDED(relu(a));
  EXPECT_EQ(make_graph({here}, {}).key, make_graph({relu(a)}, {}).key);
}

TEST_F(Explain, a_branch_is_told_with_the_lines_of_both_sides) {
  const Value a = input("data", {2, 3}), begun = multiply(relu(a), a);
  const Value one = RECORDED(tanh(begun));
  const Value other = RECORDED(relu(begun));
  EXPECT_EQ(explained({program({one})}, program({other})),
            "after 2 equal operations, 'aten::relu'" + at_line(__LINE__ - 2) +
                " (operation 3 of 3) is recorded where 'aten::tanh'" + at_line(__LINE__ - 4) + " was." +
                branch_advice);
}

TEST_F(Explain, where_no_lines_were_taken_the_known_program_has_them) {
  const Value a = input("data", {2, 3});
  const Value begun = RECORDED(relu(a));
  const int line = __LINE__ - 1;
  const Value before = RECORDED(power(begun, real(2)));
  EXPECT_EQ(explained({program({before})}, program({power(relu(a), real(3))})),
            "the 2nd argument of 'aten::pow.Tensor_Scalar'" + at_line(__LINE__ - 2) +
                " (operation 2 of 2) is 3.0 where it was 2.0." + argument_advice);
  EXPECT_EQ(explained({program({begun})}, program({tanh(relu(a))})),
            "after 1 equal operation" + at_line(line) +
                ", 'aten::tanh' (operation 2 of 2) is recorded now and was not before." + branch_advice);
  EXPECT_EQ(explained({program({before})}, program({tanh(relu(a))})),
            "after 1 equal operation" + at_line(line) +
                ", 'aten::tanh' (operation 2 of 2) is recorded where 'aten::pow.Tensor_Scalar'" +
                at_line(line + 2) + " was." + branch_advice);
}

TEST_F(Explain, a_program_of_another_kind_is_told_with_its_beginning) {
  const Value a = input("data", {2, 3});
  const Value other = RECORDED(tanh(a));
  EXPECT_EQ(explained({program({relu(a)})}, program({other})),
            "it has little in common with any before: of its 1 kind of operations, the one most like it has "
            "0; it begins" +
                at_line(__LINE__ - 4) +
                ". Evaluation, and reading a value in the middle of a step, make programs of their own. If "
                "more follow, read values after the step has ended.");
}

TEST_F(Explain, an_input_is_told_with_the_line_that_uses_it) {
  auto step = [&](int64_t rows) { return program({RECORDED(tanh(input("data", {rows, 4})))}); };
  EXPECT_EQ(explained({step(64)}, step(32)),
            "input 'data', first used" + at_line(__LINE__ - 2) +
                ", has 32 rows where it had 64. If this is an epoch's last, shorter batch, leave it out "
                "(drop_last) or pad it.");
}

TEST_F(Explain, a_loop_is_told_with_a_line_of_its_body) {
  auto step = [&](int64_t times) { return program({RECORDED(steps(times, input("data", {4, 4})))}); };
  EXPECT_EQ(explained({step(16)}, step(17)),
            "a block of 3 operations" + at_line(__LINE__ - 2) +
                " is repeated 17 times instead of 16: a loop whose length is not the same in every step." +
                loop_advice);
}

TEST_F(Explain, a_result_is_told_with_its_line_and_compared_without) {
  const Value a = input("data", {2, 3});
  const Value here = RECORDED(relu(a)), loss = tanh(here);
  const Value there = RECORDED(relu(a));
  EXPECT_EQ(explained({program({loss})}, program({there, tanh(there)})),
            "the tensor<2x3xf32> of 'aten::relu'" + at_line(__LINE__ - 2) +
                " (operation 1 of 2) is kept now and was not before." + result_advice);
  EXPECT_EQ(
      explained({program({here, loss})}, program({there, tanh(there)})),
      "the operations, inputs and results are those of a program before. If this goes on, it is a fault "
      "of ivme: please report it.");
}

// --- when lines are taken ----------------------------------------------------------------------------------

TEST_F(Explain, lines_are_wanted_until_the_programs_are_known_with_theirs) {
  ASSERT_FALSE(WantOfLines::any());
  const Value a = input("data", {2, 3});
  ProgramsOfLoop programs(1, 0);
  EXPECT_TRUE(programs.wants_lines());
  EXPECT_TRUE(WantOfLines::any());
  const Value one = RECORDED(relu(a));
  programs.note(make_graph({one}, {}));
  EXPECT_TRUE(programs.wants_lines());  // is it the only one?
  programs.note(make_graph({relu(a)}, {}));
  EXPECT_FALSE(programs.wants_lines());
  EXPECT_FALSE(WantOfLines::any());

  programs.note(make_graph({tanh(a)}, {}));  // a miss, when none were taken
  EXPECT_TRUE(programs.wants_lines());
  programs.note(make_graph({one}, {}));
  EXPECT_TRUE(programs.wants_lines());
  const Value other = RECORDED(tanh(a));
  programs.note(make_graph({other}, {}));
  EXPECT_FALSE(programs.wants_lines());
}

TEST_F(Explain, a_program_that_does_not_return_is_not_waited_for_with_lines) {
  const Value a = input("data", {2, 3});
  ProgramsOfLoop programs(1, 0);
  const Value one = RECORDED(relu(a));
  programs.note(make_graph({one}, {}));
  programs.note(make_graph({one}, {}));
  programs.note(make_graph({tanh(a)}, {}));
  int steps = 0;
  while (programs.wants_lines() && steps < 1000) {
    programs.note(make_graph({one}, {}));
    ++steps;
  }
  EXPECT_EQ(steps, 64);
}

TEST_F(Explain, lines_that_are_always_wanted_are) {
  const Value a = input("data", {2, 3});
  ProgramsOfLoop programs(1, 0);
  programs.always_want_lines(true);
  const Value one = RECORDED(relu(a));
  for (int step = 0; step < 3; ++step) programs.note(make_graph({one}, {}));
  EXPECT_TRUE(programs.wants_lines());
  programs.always_want_lines(false);
  programs.note(make_graph({one}, {}));
  EXPECT_FALSE(programs.wants_lines());
}

TEST_F(Explain, a_recording_that_has_ended_wants_nothing) {
  {
    ProgramsOfLoop first(1, 0);
    ProgramsOfLoop moved = std::move(first);
    EXPECT_TRUE(moved.wants_lines());
    moved = ProgramsOfLoop(2, 0);
    EXPECT_TRUE(WantOfLines::any());
  }
  EXPECT_FALSE(WantOfLines::any());
}

// One that goes beyond max_programs says where.
TEST_F(Explain, max_programs_names_the_line) {
  const Value a = input("data", {2, 3});
  ProgramsOfLoop programs(1, 1);
  const Value one = RECORDED(tanh(relu(a)));
  programs.note(make_graph({one}, {}));
  const Value other = RECORDED(relu(relu(a)));
  try {
    programs.note(make_graph({other}, {}));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "The step would be program 2, and max_programs is 1: after 1 equal operation, 'aten::relu'" +
                  at_line(__LINE__ - 7) + " (operation 2 of 2) is recorded where 'aten::tanh'" +
                  at_line(__LINE__ - 10) + " was." + branch_advice);
  }
}

}  // namespace
}  // namespace ivme::xla
