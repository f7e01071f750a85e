#include "xla/lower/program.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "ivme/error.h"
#include "xla/lower/op.h"

namespace ivme::xla {
namespace {

constexpr Dtype number_dtypes[] = {Dtype::f32, Dtype::f64, Dtype::i64};

std::vector<const Node*> numbers_of(const Graph& graph, Dtype dtype) {
  std::vector<const Node*> numbers;
  for (const Node* number : graph.numbers) {
    if (number->shapes[0].dtype == dtype) numbers.push_back(number);
  }
  return numbers;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  size_t end = bytes.size();
  bytes.resize(end + sizeof value);
  std::memcpy(bytes.data() + end, &value, sizeof value);
}

// Writes @main: its arguments, then one operation after the other.
class Program {
 public:
  explicit Program(const Graph& graph) : graph_(graph) {
    add_leaves();
    add_numbers();
    for (const Node* node : graph.order) {
      if (node->kind == Node::Kind::operation) add_operation(*node);
    }
  }

  std::string text() const {
    std::string values, types;
    for (const Value& root : graph_.roots) {
      const Hlo& value = values_.at(root.node.get())[static_cast<size_t>(root.output)];
      values += (values.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + to_string(value.shape);
    }
    std::string last = values.empty() ? "  return\n" : "  return " + values + " : " + types + "\n";
    return "module @ivme {\nfunc.func public @main(" + arguments_ + ") -> (" + types + ") {\n" +
           emitter_.text() + last + "}\n}\n";
  }

 private:
  Hlo add_argument(const Shape& shape, int root) {
    Hlo value = emitter_.name_value("%arg" + std::to_string(count_++), shape);
    arguments_ += (arguments_.empty() ? "" : ", ") + value.name + ": " + to_string(shape);
    if (root >= 0) arguments_ += " {tf.aliasing_output = " + std::to_string(root) + " : i32}";
    return value;
  }

  void add_leaves() {
    std::unordered_map<const Buffer*, Hlo> by_buffer;
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      auto taker = std::find(graph_.aliases.begin(), graph_.aliases.end(), static_cast<int>(i));
      int root = taker == graph_.aliases.end() ? -1 : static_cast<int>(taker - graph_.aliases.begin());
      const Node& leaf = *graph_.leaves[i];
      Hlo value = add_argument(leaf.shapes[0], root);
      values_[&leaf] = {value};
      if (leaf.buffer) by_buffer[leaf.buffer.get()] = value;
    }
    for (const Node* node : graph_.order) {
      if (node->kind == Node::Kind::leaf && node->buffer) values_[node] = {by_buffer.at(node->buffer.get())};
    }
  }

  void add_numbers() {
    for (Dtype dtype : number_dtypes) {
      std::vector<const Node*> numbers = numbers_of(graph_, dtype);
      if (numbers.empty()) continue;
      Hlo pack = add_argument({dtype, {static_cast<int64_t>(numbers.size())}}, -1);
      for (size_t i = 0; i < numbers.size(); ++i) {
        auto at = static_cast<int64_t>(i);
        values_[numbers[i]] = {emitter_.reshape(emitter_.slice(pack, {at}, {at + 1}), {})};
      }
    }
  }

  void add_operation(const Node& node) {
    std::vector<Hlo> operands;
    for (const Value& operand : node.operands) {
      operands.push_back(values_.at(operand.node.get())[static_cast<size_t>(operand.output)]);
    }
    values_[&node] = node.op->lower(Call(emitter_, operands, node.arguments));
  }

  const Graph& graph_;
  Emitter emitter_;
  std::string arguments_;
  int count_ = 0;
  std::unordered_map<const Node*, std::vector<Hlo>> values_;
};

}  // namespace

std::string lower(const Graph& graph) { return Program(graph).text(); }

NumberBits bits_of(const Node& number) {
  const Dtype dtype = number.shapes[0].dtype;
  if (dtype == Dtype::f32) return {dtype, std::bit_cast<uint32_t>(static_cast<float>(number.real))};
  if (dtype == Dtype::f64) return {dtype, std::bit_cast<uint64_t>(number.real)};
  return {dtype, static_cast<uint64_t>(number.integer)};
}

std::vector<PackedNumbers> pack_numbers(const std::vector<NumberBits>& numbers) {
  std::vector<PackedNumbers> packs;
  for (Dtype dtype : number_dtypes) {
    PackedNumbers pack{{dtype, {0}}, {}};
    for (const NumberBits& number : numbers) {
      if (number.dtype != dtype) continue;
      if (dtype == Dtype::f32)
        append(pack.bytes, static_cast<uint32_t>(number.bits));
      else
        append(pack.bytes, number.bits);
      ++pack.shape.dims[0];
    }
    if (!pack.bytes.empty()) packs.push_back(std::move(pack));
  }
  return packs;
}

std::vector<PackedNumbers> pack_numbers(const Graph& graph) {
  std::vector<NumberBits> numbers;
  for (const Node* number : graph.numbers) numbers.push_back(bits_of(*number));
  return pack_numbers(numbers);
}

}  // namespace ivme::xla
