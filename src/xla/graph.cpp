#include "xla/graph.h"

#include <bit>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ivme/error.h"
#include "xla/lower/op.h"

namespace ivme::xla {
namespace {

constexpr uint64_t leaf_tag = 1, number_tag = 2, operation_tag = 3, none_tag = 4;
constexpr size_t most_inferences = 1 << 16;

struct DtypeRow {
  const char* name;
  int64_t size;
  bool floating;
};
constexpr DtypeRow dtypes[] = {{"f32", 4, true},  {"f64", 8, true},  {"f16", 2, true},  {"bf16", 2, true},
                               {"i64", 8, false}, {"i32", 4, false}, {"i16", 2, false}, {"i8", 1, false},
                               {"ui8", 1, false}, {"i1", 1, false}};

uint64_t mix_text(uint64_t hash, std::string_view text) {
  hash = mix(hash, text.size());
  for (char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

uint64_t mix_shape(uint64_t hash, const Shape& shape) {
  hash = mix(mix(hash, static_cast<uint64_t>(shape.dtype)), shape.dims.size());
  for (int64_t dim : shape.dims) hash = mix(hash, static_cast<uint64_t>(dim));
  return hash;
}

uint64_t mix_argument(uint64_t hash, const Argument& argument) {
  hash = mix(hash, static_cast<uint64_t>(argument.kind) * 2 + argument.weak);
  hash = mix(mix(hash, static_cast<uint64_t>(argument.integer)), std::bit_cast<uint64_t>(argument.real));
  hash = mix(mix(hash, argument.integers.size()), argument.reals.size());
  for (int64_t value : argument.integers) hash = mix(hash, static_cast<uint64_t>(value));
  for (double value : argument.reals) hash = mix(hash, std::bit_cast<uint64_t>(value));
  return argument.text.empty() ? hash : mix_text(hash, argument.text);
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// By bits: a NaN is itself, and −0 is not 0.
bool same(const Argument& a, const Argument& b) {
  if (a.kind != b.kind || a.weak != b.weak || a.integer != b.integer || !same_bits(a.real, b.real))
    return false;
  if (a.integers != b.integers || a.text != b.text || a.reals.size() != b.reals.size()) return false;
  for (size_t i = 0; i < a.reals.size(); ++i) {
    if (!same_bits(a.reals[i], b.reals[i])) return false;
  }
  return true;
}

// The shapes that a row gave for these arguments.
struct Inference {
  const Op* op;
  std::vector<Argument> arguments;
  std::vector<Shape> operands;
  std::vector<Shape> outputs;

  bool is_of(const Op& asked, const std::vector<Value>& values,
             const std::vector<Argument>& asked_arguments) const {
    if (op != &asked || operands.size() != values.size() || arguments.size() != asked_arguments.size())
      return false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (operands[i] != values[i].shape()) return false;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!same(arguments[i], asked_arguments[i])) return false;
    }
    return true;
  }
};

struct Inferences {
  std::shared_mutex mutex;
  std::unordered_multimap<uint64_t, Inference> by_hash;
};
Inferences& inferences() {
  static Inferences all;
  return all;
}

std::vector<Shape> infer(const Op& op, const std::vector<Value>& operands,
                         const std::vector<Argument>& arguments) {
  Emitter emitter;
  std::vector<Hlo> values;
  for (const Value& operand : operands) values.push_back(emitter.name_value("%x", operand.shape()));
  std::vector<Shape> shapes;
  for (const Hlo& result : op.lower(Call(emitter, values, arguments))) shapes.push_back(result.shape);
  return shapes;
}

std::vector<Shape> shapes_of(const Op& op, const std::vector<Value>& operands,
                             const std::vector<Argument>& arguments, uint64_t hash) {
  Inferences& all = inferences();
  {
    std::shared_lock lock(all.mutex);
    auto [begin, end] = all.by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second.is_of(op, operands, arguments)) return it->second.outputs;
    }
  }
  Inference made{&op, arguments, {}, infer(op, operands, arguments)};
  for (const Value& operand : operands) made.operands.push_back(operand.shape());
  std::vector<Shape> outputs = made.outputs;
  std::unique_lock lock(all.mutex);
  if (all.by_hash.size() >= most_inferences) all.by_hash.clear();
  all.by_hash.emplace(hash, std::move(made));
  return outputs;
}

thread_local CallSite site_of_nodes;

std::shared_ptr<Node> number_node(Dtype dtype) {
  auto node = std::make_shared<Node>();
  node->site = site_of_nodes;
  node->kind = Node::Kind::number;
  node->shapes = {Shape{dtype, {}}};
  node->hash = mix_shape(number_tag, node->shapes[0]);
  return node;
}

[[noreturn]] void refuse_number(Dtype dtype) {
  throw Error(std::string("A number was to be passed to a program as ") + name_of(dtype) +
              ". Numbers are passed as f32, f64 (floating) or i64 (whole). Convert it inside the program.");
}

// Walks from the roots, operands first, without recursion.
class Walk {
 public:
  explicit Walk(Graph& graph) : graph_(graph) {}

  void visit(const std::shared_ptr<Node>& root) {
    if (positions_.contains(root.get())) return;
    enter(root);
    while (!path_.empty()) {
      auto& [node, next] = path_.back();
      if (next < (*node)->operands.size()) {
        const std::shared_ptr<Node>& operand = (*node)->operands[next++].node;
        if (!positions_.contains(operand.get())) enter(operand);
      } else {
        leave(*node);
        path_.pop_back();
      }
    }
  }

  uint64_t position(const Value& value) const {
    return static_cast<uint64_t>(positions_.at(value.node.get())) * 64 + static_cast<uint64_t>(value.output);
  }
  int leaf_of(const Buffer* buffer) const {
    auto found = leaves_.find(buffer);
    return buffer == nullptr || found == leaves_.end() ? -1 : found->second;
  }
  uint64_t key() const { return key_; }

 private:
  void enter(const std::shared_ptr<Node>& node) {
    positions_.emplace(node.get(), -1);
    path_.emplace_back(&node, 0);
  }

  void leave(const std::shared_ptr<Node>& node) {
    positions_[node.get()] = static_cast<int64_t>(graph_.order.size());
    graph_.order.push_back(node.get());
    key_ = mix(key_, node->hash);
    for (const Value& operand : node->operands) key_ = mix(key_, position(operand));
    if (node->kind == Node::Kind::number) graph_.numbers.push_back(node.get());
    if (node->kind != Node::Kind::leaf) return;
    const void* identity = node->buffer ? static_cast<const void*>(node->buffer.get()) : node.get();
    auto [it, is_new] = leaves_.emplace(identity, static_cast<int>(graph_.leaves.size()));
    if (is_new) graph_.leaves.push_back(node);
    key_ = mix(key_, static_cast<uint64_t>(it->second));
  }

  Graph& graph_;
  std::unordered_map<const Node*, int64_t> positions_;
  std::unordered_map<const void*, int> leaves_;
  std::vector<std::pair<const std::shared_ptr<Node>*, size_t>> path_;
  uint64_t key_ = 0;
};

}  // namespace

int64_t size_of(Dtype dtype) { return dtypes[static_cast<size_t>(dtype)].size; }
bool is_floating(Dtype dtype) { return dtypes[static_cast<size_t>(dtype)].floating; }
const char* name_of(Dtype dtype) { return dtypes[static_cast<size_t>(dtype)].name; }

int64_t Shape::count() const {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

std::string to_string(const Shape& shape) {
  std::string text = "tensor<";
  for (int64_t dim : shape.dims) text += std::to_string(dim) + "x";
  return text + name_of(shape.dtype) + ">";
}

uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = (hash ^ value) * 0x9e3779b97f4a7c15;
  x ^= x >> 32;
  x = (x + std::rotl(hash, 23)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 29);
}

Node::~Node() {
  // The destructor that began the unwinding takes the operands of all that it reaches.
  static thread_local std::vector<std::shared_ptr<Node>>* released = nullptr;
  if (operands.empty()) return;
  if (released != nullptr) {
    for (Value& operand : operands) released->push_back(std::move(operand.node));
    return;
  }
  std::vector<std::shared_ptr<Node>> mine;
  released = &mine;
  for (Value& operand : operands) mine.push_back(std::move(operand.node));
  while (!mine.empty()) {
    std::shared_ptr<Node> last = std::move(mine.back());
    mine.pop_back();
    last.reset();
  }
  released = nullptr;
}

SiteOfNodes::SiteOfNodes(CallSite site) : before_(site_of_nodes) {
  if (!before_) site_of_nodes = site;
}
SiteOfNodes::~SiteOfNodes() { site_of_nodes = before_; }
CallSite SiteOfNodes::current() { return site_of_nodes; }

std::string line_of(const Node& node) { return node.site.text(); }

std::string described_at(const Node& node) {
  if (node.kind == Node::Kind::leaf) return node.name ? "input '" + *node.name + "'" : "an input";
  const std::string what =
      node.kind == Node::Kind::number ? "a number" : "'" + std::string(node.op->name) + "'";
  return what + node.site.where();
}

std::shared_ptr<Node> make_leaf(std::shared_ptr<Buffer> buffer, Shape shape) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::leaf;
  node->hash = mix_shape(leaf_tag, shape);
  node->shapes.push_back(std::move(shape));
  node->buffer = std::move(buffer);
  return node;
}

std::shared_ptr<Node> make_number(Dtype dtype, double value, std::shared_ptr<const HostNumber> source) {
  if (dtype != Dtype::f32 && dtype != Dtype::f64) refuse_number(dtype);
  auto node = number_node(dtype);
  node->real = value;
  node->source = std::move(source);
  return node;
}

std::shared_ptr<Node> make_number(Dtype dtype, int64_t value, std::shared_ptr<const HostNumber> source) {
  if (dtype != Dtype::i64) refuse_number(dtype);
  auto node = number_node(dtype);
  node->integer = value;
  node->source = std::move(source);
  return node;
}

std::shared_ptr<Node> make_operation(const Op& op, std::vector<Value> operands,
                                     std::vector<Argument> arguments) {
  uint64_t hash = mix_text(operation_tag, op.name);
  for (const Argument& argument : arguments) hash = mix_argument(hash, argument);
  hash = mix(hash, operands.size());
  for (const Value& operand : operands) hash = mix_shape(hash, operand.shape());
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->site = site_of_nodes;
  node->shapes = shapes_of(op, operands, arguments, hash);
  node->operands = std::move(operands);
  node->arguments = std::move(arguments);
  node->hash = hash;
  return node;
}

std::unordered_set<const Node*> nodes_under(std::vector<const Node*> nodes) {
  std::unordered_set<const Node*> seen;
  while (!nodes.empty()) {
    const Node* node = nodes.back();
    nodes.pop_back();
    if (!seen.insert(node).second) continue;
    for (const Value& operand : node->operands) nodes.push_back(operand.node.get());
  }
  return seen;
}

Graph make_graph(std::vector<Value> roots, const std::vector<const Buffer*>& aliases) {
  Graph graph;
  Walk walk(graph);
  for (const Value& root : roots) {
    walk.visit(root.node);
    graph.number_groups.push_back(graph.numbers.size());
  }
  uint64_t key = walk.key();
  std::vector<bool> taken(graph.leaves.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    int leaf = i < aliases.size() ? walk.leaf_of(aliases[i]) : -1;
    if (leaf >= 0) {
      size_t at = static_cast<size_t>(leaf);
      if (taken[at] || graph.leaves[at]->shapes[0] != roots[i].shape())
        leaf = -1;
      else
        taken[at] = true;
    }
    graph.aliases.push_back(leaf);
    key = mix(mix(key, walk.position(roots[i])), leaf < 0 ? none_tag << 32 : static_cast<uint64_t>(leaf));
  }
  graph.key = key;
  graph.roots = std::move(roots);
  return graph;
}

}  // namespace ivme::xla
