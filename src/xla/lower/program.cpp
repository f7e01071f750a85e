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

// The indices of those that are passed as one argument; none is empty.
template <class DtypeAt>
std::vector<std::vector<size_t>> packs_of(const std::vector<size_t>& groups, DtypeAt dtype_at) {
  std::vector<std::vector<size_t>> packs;
  size_t begin = 0;
  for (size_t end : groups) {
    for (Dtype dtype : number_dtypes) {
      std::vector<size_t> pack;
      for (size_t i = begin; i < end; ++i)
        if (dtype_at(i) == dtype) pack.push_back(i);
      if (!pack.empty()) packs.push_back(std::move(pack));
    }
    begin = end;
  }
  return packs;
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
    auto dtype_at = [&](size_t i) { return graph_.numbers[i]->shapes[0].dtype; };
    for (const std::vector<size_t>& indices : packs_of(graph_.number_groups, dtype_at)) {
      Hlo pack = add_argument({dtype_at(indices[0]), {static_cast<int64_t>(indices.size())}}, -1);
      for (size_t i = 0; i < indices.size(); ++i) {
        auto at = static_cast<int64_t>(i);
        values_[graph_.numbers[indices[i]]] = {emitter_.reshape(emitter_.slice(pack, {at}, {at + 1}), {})};
      }
    }
  }

  void add_operation(const Node& node) {
    std::vector<Hlo> operands;
    for (const Value& operand : node.operands) {
      operands.push_back(values_.at(operand.node.get())[static_cast<size_t>(operand.output)]);
    }
    try {
      values_[&node] = node.op->lower(Call(emitter_, operands, node.arguments));
    } catch (const Error& error) {
      const std::string line = line_of(node);
      throw Error((line.empty() ? "" : line + ": ") + error.what());
    }
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

std::vector<PackedNumbers> pack_numbers(const std::vector<NumberBits>& numbers,
                                        const std::vector<size_t>& groups) {
  std::vector<PackedNumbers> packs;
  for (const std::vector<size_t>& indices : packs_of(groups, [&](size_t i) { return numbers[i].dtype; })) {
    const Dtype dtype = numbers[indices[0]].dtype;
    PackedNumbers& pack = packs.emplace_back();
    pack.shape = {dtype, {static_cast<int64_t>(indices.size())}};
    for (size_t i : indices) {
      if (dtype == Dtype::f32)
        append(pack.bytes, static_cast<uint32_t>(numbers[i].bits));
      else
        append(pack.bytes, numbers[i].bits);
    }
  }
  return packs;
}

std::vector<PackedNumbers> pack_numbers(const Graph& graph) {
  std::vector<NumberBits> numbers;
  for (const Node* number : graph.numbers) numbers.push_back(bits_of(*number));
  return pack_numbers(numbers, graph.number_groups);
}

}  // namespace ivme::xla
