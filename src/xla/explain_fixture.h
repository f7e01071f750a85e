#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "xla/explain.h"
#include "xla/lower/op.h"

// For tests: programs with named inputs, and what explain() says about them.
namespace ivme::xla::explain_fixture {

// Graphs look at a buffer's address only.
inline std::shared_ptr<Buffer> some_buffer() {
  auto byte = std::make_shared<char>();
  return {byte, reinterpret_cast<Buffer*>(byte.get())};
}

inline Argument argument(Argument::Kind kind, int64_t integer = 0) {
  Argument made;
  made.kind = kind;
  made.integer = integer;
  return made;
}
inline Argument operand(int64_t index) { return argument(Argument::Kind::operand, index); }
inline Argument real(double value) {
  Argument made = argument(Argument::Kind::real);
  made.real = value;
  return made;
}
inline Argument list(Dims values) {
  Argument made = argument(Argument::Kind::integers);
  made.integers = std::move(values);
  return made;
}

inline Value apply(std::string_view op, std::vector<Value> operands, std::vector<Argument> arguments) {
  return {make_operation(*find_op(op), std::move(operands), std::move(arguments))};
}
inline Value relu(const Value& x) { return apply("aten::relu", {x}, {operand(0)}); }
inline Value tanh(const Value& x) { return apply("aten::tanh", {x}, {operand(0)}); }
inline Value mm(const Value& a, const Value& b) {
  return apply("aten::mm", {a, b}, {operand(0), operand(1)});
}
inline Value multiply(const Value& a, const Value& b) {
  return apply("aten::mul.Tensor", {a, b}, {operand(0), operand(1)});
}
inline Value power(const Value& x, Argument exponent) {
  return apply("aten::pow.Tensor_Scalar", {x}, {operand(0), std::move(exponent)});
}
inline Value scale(const Value& x, const std::shared_ptr<Node>& factor) {
  Argument number = operand(1);
  number.weak = true;
  return apply("aten::mul.Scalar", {x, {factor}}, {operand(0), number});
}
inline Value expand(const Value& x, Dims sizes) {
  return apply("ivme::expand", {x}, {operand(0), list(std::move(sizes))});
}

class Explain : public testing::Test {
 protected:
  Value input(const std::string& name, Dims dims, Dtype dtype = Dtype::f32) {
    Value made{make_leaf(some_buffer(), {dtype, std::move(dims)})};
    names_[made.node.get()] = name;
    kept_.push_back(made);
    return made;
  }
  ProgramSummary program(std::vector<Value> roots, const std::vector<Value>& updated = {}) const {
    std::vector<const Buffer*> memory;
    for (const Value& leaf : updated) memory.push_back(leaf ? leaf.node->buffer.get() : nullptr);
    return summarize(make_graph(std::move(roots), memory),
                     [&](const Node& leaf) { return names_.at(&leaf); });
  }
  // So many repetitions of tanh, multiply, relu.
  static Value steps(int64_t times, const Value& data) {
    Value x = data;
    for (int64_t i = 0; i < times; ++i) x = relu(multiply(tanh(x), data));
    return x;
  }

 private:
  std::unordered_map<const Node*, std::string> names_;
  std::vector<Value> kept_;  // so that no address is used again
};

// What is said about `now`, between the first words and the last sentence.
inline std::string explained(const std::vector<ProgramSummary>& known, const ProgramSummary& now) {
  std::vector<const ProgramSummary*> pointers;
  for (const ProgramSummary& one : known) pointers.push_back(&one);
  std::string text = explain(pointers, now, {.seconds = 2.46});
  const std::string first = "Another program was compiled: ";
  const std::string last =
      " Compiling took 2.5 s; there are " + std::to_string(known.size() + 1) + " programs now.";
  EXPECT_TRUE(text.starts_with(first) && text.ends_with(last)) << text;
  return text.substr(first.size(), text.size() - first.size() - last.size());
}

inline const std::string branch_advice =
    " Look for a branch of the host program, such as if (step % 10 == 0): record the same in every step, for "
    "instance with torch::where, or accept one program for each side.";
inline const std::string bucket_advice =
    " Pad it to one of a few sizes (buckets), such as the next power of two, and mask what was added.";
inline const std::string argument_advice =
    " Such an argument is part of the program: keep it the same in every step, or pass a number that changes "
    "as a 0-dimensional tensor on xla where the operation takes one.";
inline const std::string result_advice =
    " A tensor that outlives the step, such as one that is kept to be logged, is a result of the program: "
    "keep the same ones in every step, or none, and numbers that were read after the step instead.";
inline const std::string loop_advice =
    " Let it run for one length, padded and masked, or for one of a few (buckets).";
inline const std::string training_advice =
    " Each set of parameters that are trained together is one program: have few sets, or keep parameters as "
    "they are with a group of their own whose learning rate is 0, which may change at no cost.";
inline const std::string update_advice =
    " Parameters that are frozen, thawed or tied, optimizer state that the first step makes, and steps "
    "without optimizer.step() do that. Each kind of step is compiled once: have few kinds.";

}  // namespace ivme::xla::explain_fixture
