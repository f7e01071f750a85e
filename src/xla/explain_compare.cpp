#include "xla/explain_compare.h"

#include <algorithm>
#include <utility>

#include "xla/lower/op.h"

namespace ivme::xla {
namespace {

using Input = ProgramSummary::Input;
using Source = ProgramSummary::Source;

constexpr size_t least_repeated = 4;  // operations that count as a loop

const void* identity(const Node& leaf) {
  return leaf.buffer ? static_cast<const void*>(leaf.buffer.get()) : &leaf;
}

// The operations' names as numbers.
class Names {
 public:
  std::vector<size_t> of(const ProgramSummary& program) {
    std::vector<size_t> of_form, all;
    for (const auto& form : program.forms)
      of_form.push_back(numbers_.emplace(form.op, numbers_.size()).first->second);
    for (const auto& operation : program.operations) all.push_back(of_form[operation.form]);
    return all;
  }
  size_t count() const { return numbers_.size(); }

 private:
  std::unordered_map<std::string_view, size_t> numbers_;
};

size_t differing(const ProgramSummary& before, const ProgramSummary& now, size_t prefix) {
  size_t count = 0;
  for (size_t i = 0; i < prefix; ++i) count += before.form_of(i).hash != now.form_of(i).hash;
  for (size_t i = 0; i < std::min(before.inputs.size(), now.inputs.size()); ++i)
    count += before.inputs[i].shape != now.inputs[i].shape;
  return count;
}

void measure(Likeness& like, const ProgramSummary& now, const std::vector<size_t>& now_names, size_t names) {
  const auto parting =
      std::mismatch(like.names.begin(), like.names.end(), now_names.begin(), now_names.end());
  like.prefix = static_cast<size_t>(parting.first - like.names.begin());
  std::vector<size_t> times_before(names), times_now(names);
  for (size_t name : like.names) ++times_before[name];
  for (size_t name : now_names) ++times_now[name];
  for (size_t name = 0; name < names; ++name) {
    const auto [less, more] = std::minmax(times_before[name], times_now[name]);
    like.unshared += more - less;
    like.kinds_before += times_before[name] > 0;
    like.kinds_now += times_now[name] > 0;
    like.kinds_shared += less > 0;
  }
  like.differing = differing(*like.before, now, like.prefix);
}

// For each position, how many values from there on equal those from the beginning on.
std::vector<size_t> common_lengths(const std::vector<size_t>& values) {
  std::vector<size_t> lengths(values.size());
  size_t left = 0, right = 0;  // the match that reaches farthest
  for (size_t i = 1; i < values.size(); ++i) {
    size_t& length = lengths[i];
    if (i < right) length = std::min(right - i, lengths[i - left]);
    while (i + length < values.size() && values[length] == values[i + length]) ++length;
    if (i + length > right) std::tie(left, right) = std::pair(i, i + length);
  }
  return lengths;
}

class Summarizer {
 public:
  ProgramSummary summary;

  void add_inputs(const Graph& graph, const NameOf& name_of) {
    for (const auto& leaf : graph.leaves) {
      inputs_.emplace(identity(*leaf), summary.inputs.size());
      summary.inputs.push_back({name_of(*leaf), leaf->shapes[0]});
    }
  }
  void add(const Node& node) { indices_.emplace(&node, index_of(node)); }
  Source source(const Value& value) const {
    return {value.node->kind, value.output, static_cast<int64_t>(indices_.at(value.node.get()))};
  }

 private:
  size_t index_of(const Node& node) {
    if (node.kind == Node::Kind::leaf) {
      summary.leaves.push_back(inputs_.at(identity(node)));
      return summary.leaves.size() - 1;
    }
    if (node.kind == Node::Kind::number) {
      summary.numbers.push_back(node.shapes[0].dtype);
      return summary.numbers.size() - 1;
    }
    const auto [form, is_new] = forms_.emplace(node.hash, summary.forms.size());
    if (is_new) summary.forms.push_back({node.op->name, node.arguments, node.shapes, node.hash});
    summary.operations.push_back({form->second, summary.operands.size(), {}});
    for (const Value& operand : node.operands) summary.operands.push_back(source(operand));
    return summary.operations.size() - 1;
  }

  std::unordered_map<const void*, size_t> inputs_;
  std::unordered_map<const Node*, size_t> indices_;
  std::unordered_map<uint64_t, size_t> forms_;
};

}  // namespace

ProgramSummary summarize(const Graph& graph, const NameOf& name_of) {
  Summarizer summarizer;
  summarizer.summary.key = graph.key;
  summarizer.add_inputs(graph, name_of);
  for (const Node* node : graph.order) summarizer.add(*node);
  for (const Value& root : graph.roots) summarizer.summary.results.push_back(summarizer.source(root));
  summarizer.summary.aliases = graph.aliases;
  add_lines(graph, summarizer.summary);
  return std::move(summarizer.summary);
}

void add_lines(const Graph& graph, ProgramSummary& summary) {
  if (summary.has_lines) return;
  size_t operation = 0, known = 0;
  for (const Node* node : graph.order) {
    if (node->kind != Node::Kind::operation) continue;
    if (node->site) summary.operations[operation].site = node->site;
    ++operation;
    known += static_cast<bool>(node->site);
  }
  summary.has_lines = 2 * known >= operation;
}

Comparison compare(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now) {
  Names names;
  Comparison all{.now = now, .names = names.of(now), .known = {}};
  for (const ProgramSummary* program : known) all.known.push_back({program, names.of(*program)});
  for (Likeness& like : all.known) measure(like, now, all.names, names.count());
  for (size_t i = 1; i < all.known.size(); ++i) {
    if (all.known[i].distance() <= all.likeness().distance()) all.nearest = i;
  }
  return all;
}

Counterparts::Counterparts(const ProgramSummary& program) : program_(program) {
  for (const Input& input : program.inputs) {
    if (!input.name.empty()) by_name_.emplace(input.name, &input);
  }
}

const Input* Counterparts::of(const ProgramSummary& other, size_t input) const {
  const std::string& name = other.inputs[input].name;
  if (other.inputs.size() == program_.inputs.size() && program_.inputs[input].name == name)
    return &program_.inputs[input];
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

// Of several periods the one that reaches farthest back from where they part, of these the shortest.
std::optional<Repetition> find_repetition(const std::vector<size_t>& longer,
                                          const std::vector<size_t>& shorter, size_t parting) {
  if (longer.size() <= shorter.size()) return {};
  const std::vector<size_t> backwards(longer.rend() - static_cast<int64_t>(parting) - 1, longer.rend());
  const std::vector<size_t> lengths = common_lengths(backwards);
  std::optional<Repetition> found;
  size_t farthest = least_repeated - 1;
  for (size_t block = 1; block < lengths.size(); ++block) {
    if (lengths[block] == 0) continue;
    const size_t repeated = block + lengths[block] - 1;  // operations before the parting, in both
    if (repeated < 2 * block || repeated <= farthest) continue;
    farthest = repeated;
    size_t end = parting;
    while (end < longer.size() && longer[end] == longer[end - block]) ++end;
    const bool ends = end == longer.size(), other_ends = parting == shorter.size();
    const bool agree = ends || other_ends ? ends && other_ends : longer[end] == shorter[parting];
    if (agree && (end - parting) % block == 0)
      found = {block, (repeated + end - parting) / block, repeated / block};
  }
  return found;
}

}  // namespace ivme::xla
