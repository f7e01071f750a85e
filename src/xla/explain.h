#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "xla/graph.h"

namespace ivme::xla {

// What is kept of a program that was compiled, to say later in what another differs. Holds neither nodes nor
// buffers.
struct ProgramSummary {
  // What an operand or a result is.
  struct Source {
    Node::Kind kind = Node::Kind::leaf;
    int32_t output = 0;  // operations only
    int64_t index = 0;   // in `leaves`, among the numbers or the operations

    bool operator==(const Source&) const = default;
  };
  struct Input {
    std::string name;  // may be empty
    Shape shape;
  };
  // Operations that are alike in op, arguments and shapes are described once.
  struct Form {
    std::string_view op;  // of its row, which lives as long as the process
    std::vector<Argument> arguments;
    std::vector<Shape> shapes;  // of the outputs
    uint64_t hash = 0;          // Node::hash: also knows the operands' shapes
  };
  struct Operation {
    size_t form = 0;
    size_t operands = 0;  // where its own begin in `operands`; they end where the next operation's begin
    CallSite site;        // Node::site
  };

  uint64_t key = 0;           // Graph::key
  std::vector<Input> inputs;  // Graph::leaves
  std::vector<size_t>
      leaves;  // nodes of Graph::order: which input each is; several where tensors share memory
  std::vector<Dtype> numbers;  // Graph::numbers
  std::vector<Form> forms;
  std::vector<Operation> operations;  // in the order of Graph::order
  std::vector<Source> operands;
  std::vector<Source> results;  // Graph::roots
  std::vector<int> aliases;     // Graph::aliases
  bool has_lines = false;       // most of its operations have their sites

  const Form& form_of(size_t operation) const { return forms[operations[operation].form]; }
  size_t input_of(const Source& leaf) const { return leaves[static_cast<size_t>(leaf.index)]; }
};

// What the user calls an input ("parameter 0.weight", "data"), or nothing.
using NameOf = std::function<std::string(const Node& leaf)>;

ProgramSummary summarize(const Graph& graph, const NameOf& name_of);
// Gives the summary of another graph with the same key this one's lines, if it has none and this one has.
void add_lines(const Graph& graph, ProgramSummary& summary);

// In what `now` differs from the known program (of one or more) that is most like it, with lines of the
// user's program, and what to do.
std::string difference_from(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now);

// What it took to have the executable.
struct Cost {
  enum class Way { compiled, loaded, known };  // by XLA, from the cache on disk, for another recording before
  Way way = Way::compiled;
  double seconds = 0;
};

// Why `now` was needed although the `known` programs were (none null, in the order of their first runs): what
// happened, in what it differs from the known program that is most like it, what to do, what it cost. Time
// linear in the summaries' sizes. For any thread.
std::string explain(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now,
                    const Cost& cost);

}  // namespace ivme::xla
