#include "xla/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "ivme/error.h"
#include "xla/lower/op.h"

namespace ivme::xla {
namespace {

// Graphs look at a buffer's address only.
std::shared_ptr<Buffer> some_buffer() {
  auto byte = std::make_shared<char>();
  return {byte, reinterpret_cast<Buffer*>(byte.get())};
}

Value leaf(Dims dims = {2, 3}, std::shared_ptr<Buffer> buffer = some_buffer()) {
  return {make_leaf(std::move(buffer), {Dtype::f32, std::move(dims)})};
}

Argument operand(int64_t index, bool weak = false) {
  Argument argument;
  argument.kind = Argument::Kind::operand;
  argument.integer = index;
  argument.weak = weak;
  return argument;
}

Argument real(double value) {
  Argument argument;
  argument.kind = Argument::Kind::real;
  argument.real = value;
  return argument;
}

Value multiply(const Value& a, const Value& b) {
  return {make_operation(*find_op("aten::mul.Tensor"), {a, b}, {operand(0), operand(1)})};
}
Value scale(const Value& a, double factor) {
  Value number{make_number(Dtype::f32, factor)};
  return {make_operation(*find_op("aten::mul.Scalar"), {a, number}, {operand(0), operand(1, true)})};
}
Value power(const Value& a, double exponent) {
  return {make_operation(*find_op("aten::pow.Tensor_Scalar"), {a}, {operand(0), real(exponent)})};
}

uint64_t key_of(std::vector<Value> roots, const std::vector<const Buffer*>& aliases = {}) {
  return make_graph(std::move(roots), aliases).key;
}

TEST(Graph, a_chain_of_a_million_operations_is_walked_and_released) {
  const Value start = leaf();
  Value end = start;
  for (int i = 0; i < 1'000'000; ++i) end = multiply(end, start);
  EXPECT_EQ(make_graph({end}, {}).order.size(), 1'000'001U);
  const std::weak_ptr<Node> last = end.node;
  end = {};
  EXPECT_TRUE(last.expired());
  EXPECT_EQ(start.node.use_count(), 1);
}

TEST(Graph, nodes_are_released_while_other_threads_release_theirs) {
  const Value shared = leaf();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Value end = shared;
      for (int i = 0; i < 20'000; ++i) end = multiply(end, shared);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.node.use_count(), 1);
}

TEST(Graph, every_node_follows_its_operands) {
  const Value a = leaf(), b = leaf(), c = multiply(a, b), d = multiply(c, a), e = multiply(b, d);
  const Graph graph = make_graph({e, c}, {});
  EXPECT_EQ(std::set<const Node*>(graph.order.begin(), graph.order.end()).size(), 5U);
  std::set<const Node*> seen;
  for (const Node* node : graph.order) {
    for (const Value& input : node->operands) EXPECT_TRUE(seen.contains(input.node.get()));
    seen.insert(node);
  }
  ASSERT_EQ(graph.leaves.size(), 2U);
  EXPECT_EQ(graph.leaves[0], b.node);
  EXPECT_EQ(graph.leaves[1], a.node);
}

TEST(Graph, the_key_does_not_know_buffers_and_numbers) {
  EXPECT_EQ(key_of({scale(leaf(), 0.1)}), key_of({scale(leaf(), 1)}));
  EXPECT_EQ(key_of({multiply(leaf(), leaf())}), key_of({multiply(leaf(), leaf())}));
}

TEST(Graph, the_key_knows_all_else) {
  const auto buffer = some_buffer(), other = some_buffer();
  const Value a = leaf({2, 3}, buffer), b = leaf({2, 3}, other), c = multiply(a, b);
  const std::vector<uint64_t> keys = {
      key_of({c}),
      key_of({multiply(a, a)}),
      key_of({multiply(leaf({3}), leaf({3}))}),
      key_of({c, a}),
      key_of({c, b}),
      key_of({a, c}),
      key_of({c, c}),
      key_of({c}, {buffer.get()}),
      key_of({c}, {other.get()}),
      key_of({power(a, 2)}),
      key_of({power(a, 3)}),
      key_of({power(a, 0.0)}),
      key_of({power(a, -0.0)}),
      key_of({scale(a, 2)}),
      key_of({scale(scale(a, 2), 2)}),
      key_of({}),
  };
  EXPECT_EQ(std::set<uint64_t>(keys.begin(), keys.end()).size(), keys.size());
}

TEST(Graph, two_leaves_of_one_buffer_are_one_input) {
  const auto buffer = some_buffer();
  const Graph graph = make_graph({multiply(leaf({2}, buffer), leaf({2}, buffer))}, {});
  EXPECT_EQ(graph.leaves.size(), 1U);
  EXPECT_EQ(graph.order.size(), 3U);
}

TEST(Graph, leaves_without_a_buffer_are_different_inputs) {
  EXPECT_EQ(make_graph({multiply(leaf({2}, nullptr), leaf({2}, nullptr))}, {}).leaves.size(), 2U);
}

TEST(Graph, numbers_are_never_merged) {
  const Value x = scale(scale(leaf(), 0.5), 0.5);
  const Graph graph = make_graph({x}, {});
  ASSERT_EQ(graph.numbers.size(), 2U);
  EXPECT_EQ(graph.numbers[0]->real, 0.5);
}

TEST(Graph, a_root_takes_the_memory_of_an_input_of_its_shape_once) {
  const auto buffer = some_buffer(), unused = some_buffer();
  const Value a = leaf({2, 3}, buffer), row = leaf({3}), c = multiply(a, row);
  const Graph graph = make_graph({c, multiply(c, a), multiply(row, row), multiply(c, c)},
                                 {buffer.get(), buffer.get(), buffer.get(), unused.get()});
  EXPECT_EQ(graph.aliases, (std::vector<int>{0, -1, -1, -1}));
}

TEST(MakeOperation, the_row_tells_the_shapes) {
  const Value c = multiply(leaf({4, 1}), {make_leaf(some_buffer(), {Dtype::f64, {3}})});
  EXPECT_EQ(to_string(c.shape()), "tensor<4x3xf64>");
}

TEST(MakeOperation, what_the_row_refuses_is_an_error) {
  EXPECT_THROW(multiply(leaf({2}), leaf({3})), Error);
  EXPECT_THROW(make_number(Dtype::f16, 1.0), Error);
}

TEST(MakeOperation, a_number_that_is_no_number_is_recorded_like_another) {
  EXPECT_EQ(power(leaf(), NAN).node->hash, power(leaf(), NAN).node->hash);
}

TEST(MakeOperation, threads_may_record_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int64_t i = 1; i < 500; ++i) {
        const Value x = multiply(leaf({i, t % 2 == 0 ? 1 : 5}), leaf({5}));
        if (x.shape().dims != std::vector<int64_t>{i, 5}) throw std::logic_error("wrong shape");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ivme::xla
