#include "xla/explain.h"

#include <cmath>

#include "xla/explain_fixture.h"
#include "xla/explain_words.h"

namespace ivme::xla {
namespace {

using namespace explain_fixture;

TEST_F(Explain, the_first_program_needs_no_comparison) {
  const Value x = input("data", {2, 3});
  EXPECT_EQ(
      explain({}, program({relu(x)}), {.seconds = 0.04}),
      "A first program was compiled: it has 1 operation and 1 input. Steps that record the same operations "
      "on the same shapes run without compiling. Compiling took 0.0 s; there is 1 program now.");
}

TEST_F(Explain, what_was_not_compiled_is_not_said_to_be) {
  const Value x = input("data", {2, 3});
  const ProgramSummary before = program({relu(x)}), now = program({tanh(relu(x))});
  const std::string why =
      "after 1 equal operation, 'aten::tanh' (operation 2 of 2) is recorded now and was not before." +
      branch_advice;
  EXPECT_EQ(explain({&before}, now, {Cost::Way::loaded, 0.31}),
            "Another program was needed: " + why +
                " Reading it from the cache took 0.3 s; there are 2 programs now.");
  EXPECT_EQ(
      explain({&before}, now, {Cost::Way::known, 0}),
      "Another program was needed: " + why + " It had been compiled already; there are 2 programs now.");
}

// --- inputs ------------------------------------------------------------------------------------------------

TEST_F(Explain, a_short_last_batch_is_named_with_its_rows) {
  const Value weight = input("parameter 0.weight", {8, 4});
  auto step = [&](int64_t rows) {
    return program(
        {multiply(mm(input("data", {rows, 8}), weight), expand(input("target", {rows, 1}), {rows, 4}))});
  };
  EXPECT_EQ(
      explained({step(64)}, step(32)),
      "input 'data' has 32 rows where it had 64; 1 more input changed with it. If this is an epoch's last, "
      "shorter batch, leave it out (drop_last) or pad it.");
}

TEST_F(Explain, lengths_that_vary_are_listed_and_buckets_advised) {
  auto step = [&](int64_t length) { return program({tanh(input("text", {8, length}))}); };
  EXPECT_EQ(explained({step(16), step(64), step(5)}, step(17)),
            "input 'text' has size 17 in dimension 1 where it had 16, 64 or 5." + bucket_advice);
  EXPECT_EQ(
      explained({step(16), step(64), step(5), step(6), step(7), step(8)}, step(17)),
      "input 'text' has size 17 in dimension 1 where it had 16, 64, 5, 6, 7 or others." + bucket_advice);
  EXPECT_EQ(
      explained({step(16)}, step(17)),
      "input 'text' has size 17 in dimension 1 where it had 16. Pad it to one size in every step, or to one "
      "of a few (buckets).");
}

TEST_F(Explain, only_programs_of_the_same_kind_count_as_lengths) {
  const ProgramSummary training = program({tanh(input("text", {8, 16}))});
  const ProgramSummary evaluation = program({relu(multiply(input("text", {8, 32}), input("", {})))});
  EXPECT_EQ(
      explained({training, evaluation}, program({tanh(input("text", {8, 17}))})),
      "input 'text' has size 17 in dimension 1 where it had 16. Pad it to one size in every step, or to one "
      "of a few (buckets).");
}

TEST_F(Explain, an_input_without_a_name_is_told_by_number_and_shape) {
  auto step = [&](int64_t rows) { return program({multiply(input("", {rows, 2}), input("mask", {2}))}); };
  EXPECT_EQ(
      explained({step(4)}, step(1)),
      "input number 1 (tensor<1x2xf32>) has 1 row where it had 4. If this is an epoch's last, shorter batch, "
      "leave it out (drop_last) or pad it.");
}

TEST_F(Explain, another_dtype_is_an_input_s_change) {
  auto step = [&](Dtype dtype) { return program({tanh(input("data", {4}, dtype))}); };
  EXPECT_EQ(
      explained({step(Dtype::f32)}, step(Dtype::f16)),
      "input 'data' is f16 where it was f32. Convert it to one dtype in every step, best where it is made.");
}

TEST_F(Explain, shapes_that_differ_in_more_than_one_size_are_told_whole) {
  auto step = [&](Dims dims) { return program({tanh(input("data", std::move(dims)))}); };
  const std::string advice = " Bring it to one shape in every step, or to one of a few (buckets).";
  EXPECT_EQ(explained({step({4, 28, 28})}, step({4, 784})),
            "input 'data' is tensor<4x784xf32> where it was tensor<4x28x28xf32>." + advice);
  EXPECT_EQ(explained({step({4, 28, 28})}, step({4, 32, 32})),
            "input 'data' is tensor<4x32x32xf32> where it was tensor<4x28x28xf32>." + advice);
}

// --- operations --------------------------------------------------------------------------------------------

TEST_F(Explain, a_branch_is_told_by_the_first_operation_that_differs) {
  const Value a = input("data", {2, 3});
  const Value begun = multiply(relu(a), a);
  EXPECT_EQ(explained({program({multiply(tanh(begun), a)})}, program({multiply(relu(begun), a)})),
            "after 2 equal operations, 'aten::relu' (operation 3 of 4) is recorded where 'aten::tanh' was." +
                branch_advice);
  EXPECT_EQ(explained({program({relu(multiply(a, a))})}, program({relu(tanh(a))})),
            "at the beginning, 'aten::tanh' (operation 1 of 2) is recorded where 'aten::mul.Tensor' was." +
                branch_advice);
}

TEST_F(Explain, a_branch_with_inputs_and_results_of_its_own_is_a_branch) {
  const Value a = input("data", {2, 3}), b = relu(a);
  EXPECT_EQ(
      explained({program({multiply(b, input("", {3}))})}, program({b, tanh(multiply(b, input("", {2, 1})))})),
      "after 2 equal operations, 'aten::tanh' (operation 3 of 3) is recorded now and was not before; it has "
      "2 "
      "results where it had 1." +
          branch_advice);
}

TEST_F(Explain, operations_more_or_less_are_counted) {
  const Value a = input("data", {2, 3});
  const ProgramSummary plain = program({multiply(relu(a), a)});
  const ProgramSummary one = program({multiply(tanh(relu(a)), a)});
  const ProgramSummary more = program({multiply(tanh(power(tanh(relu(a)), real(2))), a)});
  EXPECT_EQ(explained({plain}, one),
            "after 1 equal operation, 'aten::tanh' (operation 2 of 3) is recorded now and was not before." +
                branch_advice);
  EXPECT_EQ(
      explained({one}, plain),
      "after 1 equal operation, 'aten::tanh' (operation 2 of 3) is not recorded any more." + branch_advice);
  EXPECT_EQ(
      explained({plain}, more),
      "after 1 equal operation, 'aten::tanh' (operation 2 of 5) and 2 more are recorded now and were not "
      "before." +
          branch_advice);
}

TEST_F(Explain, a_program_of_another_kind_is_called_so) {
  const Value a = input("data", {4, 4}), b = input("data", {8, 8});
  EXPECT_EQ(
      explained({program({expand(a, {2, 4, 4})}), program({relu(a)})},
                program({multiply(mm(relu(b), tanh(b)), power(b, real(2)))})),
      "it has little in common with any before: of its 5 kinds of operations, the one most like it has 1. "
      "Evaluation, and reading a value in the middle of a step, make programs of their own. If more follow, "
      "read values after the step has ended.");
}

TEST_F(Explain, an_argument_that_changes_is_told_with_both_values) {
  const Value a = input("data", {2, 3});
  auto step = [&](const Argument& exponent) { return program({relu(power(tanh(a), exponent))}); };
  EXPECT_EQ(explained({step(real(0.1))}, step(real(2))),
            "the 2nd argument of 'aten::pow.Tensor_Scalar' (operation 2 of 3) is 2.0 where it was 0.1." +
                argument_advice);
  EXPECT_EQ(explained({step(real(2))}, step(argument(Argument::Kind::integer, 2))),
            "the 2nd argument of 'aten::pow.Tensor_Scalar' (operation 2 of 3) is 2 where it was 2.0." +
                argument_advice);
}

TEST_F(Explain, lists_and_dtypes_are_told) {
  const Value a = input("data", {3});
  auto cast = [&](Dtype dtype) {
    const auto to = static_cast<int64_t>(dtype);
    return program({apply("ivme::cast", {a}, {operand(0), argument(Argument::Kind::dtype, to)})});
  };
  EXPECT_EQ(explained({program({expand(a, {2, 3})})}, program({expand(a, {5, 3})})),
            "the 2nd argument of 'ivme::expand' (operation 1 of 1) is [5, 3] where it was [2, 3]." +
                argument_advice);
  EXPECT_EQ(
      explained({cast(Dtype::f16)}, cast(Dtype::bf16)),
      "the 2nd argument of 'ivme::cast' (operation 1 of 1) is bf16 where it was f16." + argument_advice);
}

TEST(ArgumentText, differs_for_arguments_that_differ) {
  using Kind = Argument::Kind;
  Argument weak = operand(0), reals = argument(Kind::reals), text = argument(Kind::text),
           tensors = argument(Kind::operands);
  weak.weak = true;
  reals.reals = {0.5, -1, 1e30};
  text.text = "floor";
  tensors.integers = {1, 0};
  const std::vector<std::pair<Argument, std::string>> rows = {
      {argument(Kind::none), "nothing"},
      {operand(0), "a tensor"},
      {weak, "a number"},
      {tensors, "the tensors given in [1, 0]"},
      {argument(Kind::integer, -3), "-3"},
      {argument(Kind::boolean, 1), "true"},
      {argument(Kind::boolean, 0), "false"},
      {list({}), "[]"},
      {list({2, 3}), "[2, 3]"},
      {reals, "[0.5, -1.0, 1e+30]"},
      {text, "'floor'"},
      {real(-0.0), "-0.0"},
      {real(NAN), "nan"},
      {real(-INFINITY), "-inf"},
      {real(0.1), "0.1"},
      {real(std::nextafter(0.1, 1)), "0.10000000000000002"},
      {argument(Kind::dtype, static_cast<int64_t>(Dtype::boolean)), "i1"},
  };
  for (const auto& [made, expected] : rows) EXPECT_EQ(argument_text(made), expected);
}

TEST_F(Explain, a_number_that_is_whole_now_is_told) {
  const Value a = input("data", {2, 3});
  EXPECT_EQ(
      explained({program({scale(relu(a), make_number(Dtype::f32, 0.5))})},
                program({scale(relu(a), make_number(Dtype::i64, int64_t{2}))})),
      "a number that 'aten::mul.Scalar' (operation 2 of 2) takes is i64 where it was f32. Write it with a "
      "decimal point in every step, or in none.");
}

TEST_F(Explain, an_operand_that_comes_from_elsewhere_is_told) {
  const Value a = input("data", {2, 3}), b = relu(a), c = tanh(b);
  EXPECT_EQ(explained({program({multiply(c, b)})}, program({multiply(c, a)})),
            "'aten::mul.Tensor' (operation 3 of 3) takes input 'data' where it took the tensor<2x3xf32> of "
            "'aten::relu' (operation 1 of 3)." +
                branch_advice);
}

// --- state -------------------------------------------------------------------------------------------------

TEST_F(Explain, inputs_that_become_one_are_tied_parameters) {
  const Value a = input("parameter encoder", {3, 3}), b = input("parameter decoder", {3, 3});
  const ProgramSummary apart = program({mm(relu(a), b)}), tied = program({mm(relu(a), a)});
  const std::string advice = " Tie parameters, and untie them, before the first step, and leave them so.";
  EXPECT_EQ(
      explained({apart}, tied),
      "input 'parameter decoder' and input 'parameter encoder' are one tensor now and were two before, in "
      "'aten::mm' (operation 2 of 2)." +
          advice);
  EXPECT_EQ(
      explained({tied}, apart),
      "input 'parameter encoder' and input 'parameter decoder' are two tensors now and were one before, in "
      "'aten::mm' (operation 2 of 2)." +
          advice);
}

// Both have the memory of one input, which two tensors share.
TEST_F(Explain, which_of_two_tied_tensors_is_taken_is_told) {
  const Value a = input("parameter encoder", {3, 3});
  const Value b{make_leaf(a.node->buffer, a.shape())};
  const Value begun = multiply(a, b);
  EXPECT_EQ(explained({program({mm(begun, b)})}, program({mm(begun, a)})),
            "'aten::mm' (operation 2 of 2) takes input 'parameter encoder' through another of the tensors "
            "that share its memory. Tie parameters, and untie them, before the first step, and leave them "
            "so.");
  EXPECT_TRUE(
      explained({program({multiply(a, b)})}, program({multiply(a, a)}))
          .starts_with("'aten::mul.Tensor' (operation 1 of 1) takes input 'parameter encoder' through"));
}

TEST_F(Explain, a_number_that_is_shared_is_told) {
  const Value a = input("data", {2, 3});
  const auto one = make_number(Dtype::f32, 1.0), other = make_number(Dtype::f32, 1.0);
  EXPECT_EQ(explained({program({scale(scale(a, one), other)})}, program({scale(scale(a, one), one)})),
            "'aten::mul.Scalar' (operation 2 of 2) takes another number of the step's, shared with other "
            "operations or no more." +
                branch_advice);
}

TEST_F(Explain, a_parameter_that_is_thawed_or_frozen_is_named) {
  const Value a = input("parameter 0.weight", {3, 3}), b = input("parameter 2.weight", {3, 3});
  const Value loss = mm(relu(a), b);
  const ProgramSummary frozen = program({loss, multiply(b, loss)}, {{}, b});
  const ProgramSummary thawed = program({loss, multiply(b, loss), multiply(a, loss)}, {{}, b, a});
  EXPECT_EQ(
      explained({frozen}, thawed),
      "'parameter 0.weight' is trained now and was not before, having a gradient now (thawed, or used "
      "by the loss); after 3 equal operations, 'aten::mul.Tensor' (operation 4 of 4) is recorded now and "
      "was not before." +
          training_advice);
  EXPECT_EQ(
      explained({thawed}, frozen),
      "'parameter 0.weight' is not trained any more, having no gradient now (frozen, or not used by the "
      "loss); after 3 equal operations, 'aten::mul.Tensor' (operation 4 of 4) is not recorded any more." +
          training_advice);
}

// A step without optimizer.step() freezes nothing.
TEST_F(Explain, a_step_that_trains_nothing_is_no_frozen_parameter) {
  const Value a = input("parameter 0.weight", {3, 3}), loss = relu(a);
  EXPECT_EQ(explained({program({loss, multiply(a, loss)}, {{}, a})}, program({loss})),
            "input 'parameter 0.weight' is not updated any more; after 1 equal operation, 'aten::mul.Tensor' "
            "(operation 2 of 2) is not recorded any more." +
                update_advice);
}

TEST_F(Explain, state_that_the_first_step_made_is_named) {
  const Value weight = input("parameter 0.weight", {3, 3}), gradient = relu(weight);
  const Value momentum = input("gradient 0.weight", {3, 3}), other = input("", {3, 3});
  const Value sum = multiply(momentum, gradient), more = multiply(other, gradient);
  EXPECT_EQ(
      explained({program({gradient, multiply(weight, gradient)}, {{}, weight})},
                program({sum, more, multiply(weight, sum)}, {momentum, other, weight})),
      "input 'gradient 0.weight' and 1 more are updated now and were not before, being new; after 2 equal "
      "operations, 'aten::mul.Tensor' (operation 3 of 4) and 1 more are recorded now and were not before." +
          update_advice);
}

TEST_F(Explain, a_result_that_is_kept_is_told) {
  const Value a = input("data", {2, 3}), hidden = relu(a), loss = tanh(hidden);
  const ProgramSummary plain = program({loss}), logged = program({hidden, loss});
  EXPECT_EQ(explained({plain}, logged),
            "the tensor<2x3xf32> of 'aten::relu' (operation 1 of 2) is kept now and was not before." +
                result_advice);
  EXPECT_EQ(explained({logged}, plain),
            "the tensor<2x3xf32> of 'aten::relu' (operation 1 of 2) is not kept any more." + result_advice);
  EXPECT_EQ(
      explained({logged}, program({loss, a})),
      "input 'data' is kept now and was not before; the tensor<2x3xf32> of 'aten::relu' (operation 1 of 2) "
      "is not kept any more." +
          result_advice);
}

TEST_F(Explain, a_result_that_is_kept_is_told_although_it_changes_the_order) {
  const Value a = input("data", {2, 3}), late = tanh(a), loss = multiply(relu(a), late);
  EXPECT_EQ(explained({program({loss})}, program({late, loss})),
            "the tensor<2x3xf32> of 'aten::tanh' is kept now and was not before." + result_advice);
}

TEST_F(Explain, an_order_of_results_is_told) {
  const Value a = input("data", {2, 3}), b = relu(a), c = tanh(b);
  EXPECT_EQ(explained({program({c, b})}, program({b, c})),
            "the same results are kept in another order. Compute them in one order in every step.");
}

TEST_F(Explain, memory_that_is_overwritten_now_is_told) {
  const Value a = input("running mean", {2, 3}), b = relu(a);
  const std::string advice = " Write to a tensor in place (add_, copy_) in every step, or in none.";
  EXPECT_EQ(explained({program({b})}, program({b}, {a})),
            "input 'running mean' is overwritten now and was not before." + advice);
  EXPECT_EQ(explained({program({b}, {a})}, program({b})),
            "input 'running mean' is not overwritten any more." + advice);
  const Value c = input("running variance", {2, 3}), d = multiply(a, c);
  EXPECT_EQ(explained({program({d}, {a})}, program({d}, {c})),
            "input 'running variance' is overwritten where input 'running mean' was." + advice);
}

TEST_F(Explain, operations_in_another_order_are_a_branch) {
  const Value a = input("data", {2, 3}), b = relu(a), c = tanh(a);
  EXPECT_EQ(explained({program({multiply(b, c), b})}, program({multiply(c, b), b})),
            "at the beginning, 'aten::tanh' (operation 1 of 3) is recorded where 'aten::relu' was." +
                branch_advice);
}

TEST_F(Explain, inputs_that_change_places_are_an_operand_s_change) {
  const Value a = input("data", {2, 3}), b = input("mask", {3});
  EXPECT_EQ(
      explained({program({multiply(a, b)})}, program({multiply(b, a)})),
      "'aten::mul.Tensor' (operation 1 of 1) takes input 'mask' where it took input 'data'." + branch_advice);
}

TEST_F(Explain, no_difference_is_called_so) {
  const Value x = input("data", {2, 3});
  EXPECT_EQ(
      explained({program({relu(x)})}, program({relu(x)})),
      "the operations, inputs and results are those of a program before. If this goes on, it is a fault of "
      "ivme: please report it.");
}

TEST_F(Explain, an_operand_that_is_passed_once_or_twice_is_no_difference) {
  const Value x = input("data", {2, 3});
  const ProgramSummary once = program({apply("aten::mul.Tensor", {x}, {operand(0), operand(0)})});
  const ProgramSummary twice = program({multiply(x, x)});
  EXPECT_EQ(explained({once}, twice), explained({twice}, once));
  EXPECT_TRUE(explained({once}, twice).starts_with("the operations, inputs and results are those"));
}

TEST(Ordinal, ends_as_it_is_spoken) {
  std::string all;
  for (size_t i = 1; i <= 12; ++i) all += ordinal(i) + " ";
  EXPECT_EQ(all, "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th 11th 12th ");
}

}  // namespace
}  // namespace ivme::xla
