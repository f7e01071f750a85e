#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "support/call_site.h"

namespace ivme::xla {

class Buffer;
struct Node;
struct Op;

enum class Dtype : uint8_t { f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean };

int64_t size_of(Dtype dtype);  // bytes of an element
bool is_floating(Dtype dtype);
const char* name_of(Dtype dtype);  // as in StableHLO: "f32", "ui8", "i1"

struct Shape {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;

  int64_t count() const;
  int64_t bytes() const { return count() * size_of(dtype); }
  bool operator==(const Shape&) const = default;
};
std::string to_string(const Shape& shape);  // "tensor<2x3xf32>", as in StableHLO

// One output of a node.
struct Value {
  std::shared_ptr<Node> node;
  int output = 0;

  explicit operator bool() const { return node != nullptr; }
  const Shape& shape() const;
};

// One argument of an aten operation, in the order of its schema. Tensors are operands of the node.
struct Argument {
  enum class Kind : uint8_t {
    none,      // undefined tensor, None, and what has no meaning here (device, layout, generator)
    operand,   // `integer`: its index among the node's operands
    operands,  // a list of tensors: `integer`: index of the first; `integers`: 1 where one is defined, 0
               // where not
    integer,
    real,
    boolean,   // in `integer`
    integers,  // also lists of booleans
    reals,
    text,
    dtype,  // in `integer`: a Dtype
  };
  Kind kind = Kind::none;
  // Only for operand: a number that decides no dtype beside a tensor (PyTorch's wrapped number, or a Scalar
  // argument that is a run-time number).
  bool weak = false;
  int64_t integer = 0;
  double real = 0;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::string text;

  bool operator==(const Argument&) const = default;
};

// Where a number comes from, for a program that runs again without the host's code: asked anew in every run.
// Floating for f32 and f64, whole for i64.
using HostNumber = std::function<std::variant<double, int64_t>()>;

// A recorded operation. Immutable once made; shared by all that use it. A leaf holds a buffer that exists; a
// number is a 0-dimensional value that the host knows and that is passed anew in every run.
struct Node {
  enum class Kind : uint8_t { leaf, number, operation };

  Node() = default;
  ~Node();  // not recursive: a graph may be a million operations deep
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Kind kind = Kind::operation;
  const Op* op = nullptr;  // operations only
  std::vector<Value> operands;
  std::vector<Argument> arguments;
  std::vector<Shape> shapes;  // of the outputs
  uint64_t hash = 0;          // of op, arguments and shapes; not of operands, buffer or number

  CallSite site;  // of the user's call that recorded it, where lines are wanted; no part of the hash

  std::shared_ptr<const std::string> name;  // leaf: what the user calls it; null where that is not known
  std::shared_ptr<Buffer> buffer;           // leaf; null while an execution is under way that will fill it
  union {                                   // number: by the dtype of shapes[0]
    double real = 0;
    int64_t integer;
  };
  std::shared_ptr<const HostNumber> source;  // number; null: only the host's code knows
};

inline const Shape& Value::shape() const { return node->shapes[static_cast<size_t>(output)]; }

std::shared_ptr<Node> make_leaf(std::shared_ptr<Buffer> buffer, Shape shape);
std::shared_ptr<Node> make_number(Dtype dtype, double value, std::shared_ptr<const HostNumber> source = {});
std::shared_ptr<Node> make_number(Dtype dtype, int64_t value, std::shared_ptr<const HostNumber> source = {});
// Infers the shapes from the op's row (lower/op.h); throws Error when the row refuses the arguments.
std::shared_ptr<Node> make_operation(const Op& op, std::vector<Value> operands,
                                     std::vector<Argument> arguments);

// While it lives, the operations and numbers that this thread makes have this site. Of nested ones the
// outermost counts.
class SiteOfNodes {
 public:
  explicit SiteOfNodes(CallSite site);
  ~SiteOfNodes();
  SiteOfNodes(const SiteOfNodes&) = delete;
  SiteOfNodes& operator=(const SiteOfNodes&) = delete;
  static CallSite current();

 private:
  CallSite before_;
};

// "train.cpp:87": the line of the user's program that recorded the node, "train.cpp:87 (backward)" for its
// part of the backward pass; "" where that is not known (CallSite::text).
std::string line_of(const Node& node);
// "'aten::mul.Tensor' at train.cpp:87", "'aten::mul.Tensor'", "a number at train.cpp:87", "input 'data'".
std::string described_at(const Node& node);

uint64_t mix(uint64_t hash, uint64_t value);

// All that these values are made of, themselves included.
std::unordered_set<const Node*> nodes_under(std::vector<const Node*> nodes);

// What one program computes: all that the roots need, each node after its operands.
struct Graph {
  std::vector<Value> roots;
  std::vector<const Node*> order;
  std::vector<std::shared_ptr<Node>>
      leaves;                         // one for each buffer, in the order of first use: the program's inputs
  std::vector<const Node*> numbers;   // in that order too; by position, never merged
  std::vector<size_t> number_groups;  // for each root: the end of the numbers that no root before it needs
  std::vector<int> aliases;           // one for each root: the leaf whose memory it may take, or -1
  uint64_t key = 0;                   // equal for graphs that have the same program
};
// Walks from the roots. `aliases` as in Graph, but naming buffers: null where there is none.
Graph make_graph(std::vector<Value> roots, const std::vector<const Buffer*>& aliases);

}  // namespace ivme::xla
