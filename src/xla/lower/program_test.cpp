// With the plugin that find_plugin finds; these fail where there is none.
#include "xla/lower/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ivme/error.h"
#include "xla/lower/op.h"
#include "xla/lower/run_graph.h"

namespace ivme::xla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Value number(double value) { return {make_number(Dtype::f32, value)}; }

std::shared_ptr<Buffer> some_buffer() {
  auto byte = std::make_shared<char>();
  return {byte, reinterpret_cast<Buffer*>(byte.get())};
}

TEST(Program, numbers_follow_the_leaves_packed_by_dtype) {
  const Value x{make_leaf(some_buffer(), {Dtype::f32, {2}})};
  const Value y =
      apply("aten::mul.Scalar", {x, {make_number(Dtype::f64, 0.1)}}, {operand(0), operand(1, true)});
  const Value z = apply("aten::add.Scalar", {y, number(3), {make_number(Dtype::i64, int64_t{7})}},
                        {operand(0), operand(1, true), operand(2, true)});
  const Graph graph = make_graph({z}, {});
  EXPECT_THAT(lower(graph),
              HasSubstr("@main(%arg0: tensor<2xf32>, %arg1: tensor<1xf32>, %arg2: tensor<1xf64>, "
                        "%arg3: tensor<1xi64>) -> (tensor<2xf32>)"));
  const auto packs = pack_numbers(graph);
  ASSERT_EQ(packs.size(), 3U);
  float f32 = 0;
  double f64 = 0;
  int64_t i64 = 0;
  std::memcpy(&f32, packs[0].bytes.data(), sizeof f32);
  std::memcpy(&f64, packs[1].bytes.data(), sizeof f64);
  std::memcpy(&i64, packs[2].bytes.data(), sizeof i64);
  EXPECT_EQ(f32, 3);
  EXPECT_EQ(f64, 0.1);
  EXPECT_EQ(i64, 7);
}

// So that XLA compiles the updates of parameters of one shape once.
TEST(Program, each_root_reads_its_numbers_from_an_argument_of_its_own) {
  auto update = [](double rate) {
    const Value p{make_leaf(some_buffer(), {Dtype::f32, {2}})};
    return apply("aten::mul.Scalar",
                 {apply("aten::add.Scalar", {p, number(rate), number(1)},
                        {operand(0), operand(1, true), operand(2, true)}),
                  number(2)},
                 {operand(0), operand(1, true)});
  };
  const Value first = update(0.25), second = update(0.5);
  const Graph graph = make_graph({first, apply("aten::neg", {first}, {operand(0)}), second}, {});
  EXPECT_EQ(graph.number_groups, (std::vector<size_t>{3, 3, 6}));
  const std::string text = lower(graph);
  EXPECT_THAT(text, HasSubstr("@main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<3xf32>, "
                              "%arg3: tensor<3xf32>)"));
  for (const char* pack : {"%arg2", "%arg3"})
    for (const char* place : {" [0:1]", " [1:2]", " [2:3]"})
      EXPECT_THAT(text, HasSubstr(std::string("stablehlo.slice ") + pack + place));
  const auto packs = pack_numbers(graph);
  ASSERT_EQ(packs.size(), 2U);
  float rates[2];
  std::memcpy(&rates[0], packs[0].bytes.data(), sizeof(float));
  std::memcpy(&rates[1], packs[1].bytes.data(), sizeof(float));
  EXPECT_THAT(rates, ElementsAre(0.25F, 0.5F));
}

TEST(Program, a_root_that_takes_memory_is_marked_at_its_argument) {
  const auto buffer = some_buffer();
  const Value x{make_leaf(buffer, {Dtype::f32, {2}})};
  const Value y = apply("aten::neg", {x}, {operand(0)});
  const std::string text =
      lower(make_graph({apply("aten::exp", {x}, {operand(0)}), y}, {nullptr, buffer.get()}));
  EXPECT_THAT(text, HasSubstr("%arg0: tensor<2xf32> {tf.aliasing_output = 1 : i32}"));
}

TEST(Program, graphs_of_one_key_have_one_text) {
  auto graph = [](double factor) {
    const Value x{make_leaf(some_buffer(), {Dtype::f32, {2}})};
    return make_graph({apply("aten::mul.Scalar", {x, number(factor)}, {operand(0), operand(1, true)})}, {});
  };
  EXPECT_EQ(graph(2).key, graph(3).key);
  EXPECT_EQ(lower(graph(2)), lower(graph(3)));
}

TEST(Program, an_input_may_be_a_result) {
  EXPECT_THAT(run(make_tensor(Dtype::f64, {2}, {4, 5})), ElementsAre(4, 5));
}

// w ← w − lr·(momentum·v + 2(wx − y)x), by hand.
TEST(Program, a_step_of_gradient_descent_with_momentum) {
  const Value w = make_tensor(Dtype::f32, {2}, {1, -2}), v = make_tensor(Dtype::f32, {2}, {0.5, 0});
  const Value g = make_tensor(Dtype::f32, {2}, {0.25, 4});
  const Value velocity =
      apply("aten::add.Tensor",
            {apply("aten::mul.Scalar", {v, number(0.5)}, {operand(0), operand(1, true)}), g, number(1)},
            {operand(0), operand(1), operand(2, true)});
  const Value stepped =
      apply("aten::add.Tensor", {w, velocity, number(-0.125)}, {operand(0), operand(1), operand(2, true)});
  EXPECT_THAT(run(stepped), ElementsAre(0.9375, -2.5));
}

TEST(Emitter, what_changes_nothing_writes_nothing) {
  Emitter emitter;
  const Hlo x = emitter.name_value("%x", {Dtype::f32, {2, 3}});
  emitter.convert(x, Dtype::f32);
  emitter.reshape(x, {2, 3});
  emitter.transpose(x, {0, 1});
  emitter.broadcast(x, {2, 3});
  emitter.slice(x, {0, 0}, {2, 3});
  emitter.pad(x, x, {0, 0}, {0, 0});
  emitter.concatenate({x}, 0);
  emitter.reverse(x, {});
  emitter.reduce(Reduction::add, x, {});
  EXPECT_EQ(emitter.text(), "");
}

TEST(Emitter, equal_constants_are_written_once) {
  Emitter emitter;
  const Shape scalar{Dtype::f32, {}};
  EXPECT_EQ(emitter.constant(0.1, scalar).name, emitter.constant(0.1, scalar).name);
  EXPECT_NE(emitter.constant(0.0, scalar).name, emitter.constant(-0.0, scalar).name);
}

TEST(Emitter, constants_are_exact_in_every_dtype) {
  std::vector<Value> roots;
  for (Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
    for (double value :
         {0.1, -2.5e-5, 65504.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      const Value made = apply("ivme::full", {}, {of_dtype(dtype), list({1}), real(value)});
      const Value uploaded = make_tensor(dtype, {1}, {value});
      roots.insert(roots.end(), {made, uploaded});
    }
  }
  const auto results = run(roots);
  for (size_t i = 0; i < results.size(); i += 2) EXPECT_EQ(results[i], results[i + 1]) << i;
  EXPECT_TRUE(std::isnan(run(apply("ivme::full", {}, {of_dtype(Dtype::bf16), list({1}), real(NAN)}))[0]));
  EXPECT_THAT(run(apply("ivme::full", {}, {of_dtype(Dtype::u8), list({2}), whole(-1)})),
              ElementsAre(255, 255));
}

TEST(Rows, shapes_that_do_not_fit_are_refused_when_recorded) {
  auto zeros = [](Dims dims, Dtype dtype = Dtype::f32) {
    return Value{make_leaf(nullptr, {dtype, std::move(dims)})};
  };
  const std::vector<Argument> two{operand(0), operand(1)};
  EXPECT_THROW(apply("aten::mm", {zeros({2, 3}), zeros({4, 5})}, two), Error);
  EXPECT_THROW(apply("aten::mm", {zeros({2, 3}), zeros({3, 5}, Dtype::bf16)}, two), Error);
  EXPECT_THROW(apply("aten::mul.Tensor", {zeros({2, 3}), zeros({2})}, two), Error);
  EXPECT_THROW(apply("aten::sub.Tensor", {zeros({2}, Dtype::boolean), zeros({2}, Dtype::boolean), number(1)},
                     {operand(0), operand(1), operand(2, true)}),
               Error);
  EXPECT_THROW(apply("aten::bitwise_and.Tensor", {zeros({2}), zeros({2})}, two), Error);
  EXPECT_THROW(apply("aten::sum.dim_IntList", {zeros({2})}, {operand(0), list({1}), whole(0), {}}), Error);
  Argument both;
  both.kind = Argument::Kind::operands;
  both.integers = {1, 1};
  EXPECT_THROW(apply("aten::cat", {zeros({2, 3}), zeros({2, 4})}, {both, whole(0)}), Error);
  EXPECT_THROW(apply("aten::convolution_overrideable", {zeros({1, 3, 8, 8}), zeros({4, 2, 3, 3})},
                     {operand(0),
                      operand(1),
                      {},
                      list({1, 1}),
                      list({0, 0}),
                      list({1, 1}),
                      whole(0),
                      list({0, 0}),
                      whole(1)}),
               Error);
}

TEST(Creation, iota_counts_along_a_dimension) {
  EXPECT_THAT(
      run(apply("ivme::iota", {}, {of_dtype(Dtype::i64), list({2, 3}), whole(1), whole(5), whole(-2)})),
      ElementsAre(5, 3, 1, 5, 3, 1));
  EXPECT_THAT(
      run(apply("ivme::iota", {}, {of_dtype(Dtype::f32), list({3}), whole(0), real(0.5), real(0.25)})),
      ElementsAre(0.5, 0.75, 1));
}

TEST(Creation, expand_and_cast) {
  const Value x = make_tensor(Dtype::f32, {2, 1}, {1.75, -1.75});
  const Value wide = apply("ivme::expand", {x}, {operand(0), list({2, 2})});
  EXPECT_THAT(run(apply("ivme::cast", {wide}, {operand(0), of_dtype(Dtype::i32)})),
              ElementsAre(1, 1, -1, -1));
  EXPECT_THROW(apply("ivme::expand", {x}, {operand(0), list({3, 2})}), Error);
}

}  // namespace
}  // namespace ivme::xla
