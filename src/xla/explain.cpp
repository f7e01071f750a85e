#include "xla/explain.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "xla/explain_compare.h"
#include "xla/explain_words.h"

namespace ivme::xla {
namespace {

using Input = ProgramSummary::Input;
using Source = ProgramSummary::Source;
using Texts = std::vector<std::string>;

// What is the case, and what to do.
struct Finding {
  std::string fact;
  std::string advice;
};
using Found = std::optional<Finding>;

constexpr const char* look_for_a_branch =
    "Look for a branch of the host program, such as if (step % 10 == 0): record the same in every step, for "
    "instance with torch::where, or accept one program for each side.";

// Positions of what `of` has more often than `in`.
std::vector<size_t> surplus(const Texts& of, const Texts& in) {
  std::unordered_map<std::string_view, int64_t> left;
  for (const std::string& text : in) ++left[text];
  std::vector<size_t> positions;
  for (size_t i = 0; i < of.size(); ++i) {
    if (--left[of[i]] < 0) positions.push_back(i);
  }
  return positions;
}

// --- loops -------------------------------------------------------------------------------------------------

std::optional<std::string> repetition_text(const Comparison& c) {
  const auto& before = c.likeness().names;
  const bool more = c.names.size() > before.size();
  auto found = more ? find_repetition(c.names, before, c.likeness().prefix)
                    : find_repetition(before, c.names, c.likeness().prefix);
  if (!found) return {};
  if (!more) std::swap(found->longer, found->shorter);
  const CallSite within = c.before().operations[c.likeness().prefix - found->block].site;
  return "a block of " + counted(found->block, "operation") + within.where() + " is repeated " +
         counted(found->longer, "time") + " instead of " + std::to_string(found->shorter);
}

Found other_repetition(const Comparison& c) {
  auto text = repetition_text(c);
  if (!text) return {};
  return Finding{*text + ": a loop whose length is not the same in every step",
                 "Let it run for one length, padded and masked, or for one of a few (buckets)."};
}

// --- inputs ------------------------------------------------------------------------------------------------

// Operands are counted through the program; which operation takes this one.
size_t taker_of(const ProgramSummary& program, size_t operand) {
  const auto next =
      std::upper_bound(program.operations.begin(), program.operations.end(), operand,
                       [](size_t at, const auto& operation) { return at < operation.operands; });
  return static_cast<size_t>(next - program.operations.begin()) - 1;
}

// "input 'data', first used at train.cpp:87,".
std::string used_text(const ProgramSummary& program, size_t input) {
  const std::string text = "input " + input_text(program, input);
  const auto is_it = [&](const Source& source) {
    return source.kind == Node::Kind::leaf && program.input_of(source) == input;
  };
  const auto found = std::find_if(program.operands.begin(), program.operands.end(), is_it);
  if (found == program.operands.end()) return text;
  const size_t taker = taker_of(program, static_cast<size_t>(found - program.operands.begin()));
  const std::string where = program.operations[taker].site.where();
  return where.empty() ? text : text + ", first used" + where + ",";
}

// The one dimension in which the shapes differ, if they differ in nothing else.
std::optional<size_t> differing_dimension(const Shape& a, const Shape& b) {
  if (a.dtype != b.dtype || a.dims.size() != b.dims.size()) return {};
  std::optional<size_t> only;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (a.dims[d] == b.dims[d]) continue;
    if (only) return {};
    only = d;
  }
  return only;
}

// The sizes of that dimension in known programs where the input differs in nothing else.
std::vector<int64_t> sizes_before(const Comparison& c, size_t input, size_t dimension) {
  std::vector<int64_t> sizes;
  for (const Likeness& like : c.known) {
    const Input* other = like.related() ? Counterparts(*like.before).of(c.now, input) : nullptr;
    if (!other || differing_dimension(c.now.inputs[input].shape, other->shape) != dimension) continue;
    const int64_t size = other->shape.dims[dimension];
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  }
  return sizes;
}

Finding other_size(const Comparison& c, size_t input, size_t dimension) {
  const int64_t size = c.now.inputs[input].shape.dims[dimension];
  const std::vector<int64_t> sizes = sizes_before(c, input, dimension);
  std::string fact = used_text(c.now, input) + " has ";
  fact += dimension == 0 ? counted(static_cast<size_t>(size), "row")
                         : "size " + std::to_string(size) + " in dimension " + std::to_string(dimension);
  fact += " where it had " + alternatives(sizes);
  if (sizes.size() > 1)
    return {
        fact,
        "Pad it to one of a few sizes (buckets), such as the next power of two, and mask what was added."};
  if (dimension == 0)
    return {fact, "If this is an epoch's last, shorter batch, leave it out (drop_last) or pad it."};
  return {fact, "Pad it to one size in every step, or to one of a few (buckets)."};
}

Finding other_shape(const Comparison& c, size_t input, const Shape& before) {
  const Shape& now = c.now.inputs[input].shape;
  const std::string subject = used_text(c.now, input) + " is ";
  if (now.dims == before.dims)
    return {subject + name_of(now.dtype) + " where it was " + name_of(before.dtype),
            "Convert it to one dtype in every step, best where it is made."};
  return {subject + to_string(now) + " where it was " + to_string(before),
          "Bring it to one shape in every step, or to one of a few (buckets)."};
}

Found changed_input(const Comparison& c) {
  const auto repetition = repetition_text(c);
  const bool nameless_too = c.likeness().same_operations() || repetition;  // else places say little
  const Counterparts counterparts(c.before());
  std::vector<std::pair<size_t, const Input*>> changed;
  for (size_t i = 0; i < c.now.inputs.size(); ++i) {
    if (c.now.inputs[i].name.empty() && !nameless_too) continue;
    const Input* before = counterparts.of(c.now, i);
    if (before && before->shape != c.now.inputs[i].shape) changed.emplace_back(i, before);
  }
  if (changed.empty()) return {};
  const auto named = std::find_if(changed.begin(), changed.end(),
                                  [](const auto& change) { return !change.second->name.empty(); });
  const auto [input, before] = named == changed.end() ? changed.front() : *named;
  const auto dimension = differing_dimension(c.now.inputs[input].shape, before->shape);
  Finding found = dimension ? other_size(c, input, *dimension) : other_shape(c, input, before->shape);
  if (changed.size() > 1) found.fact += "; " + counted(changed.size() - 1, "more input") + " changed with it";
  if (repetition) found.fact += "; " + *repetition;
  return found;
}

// --- operations --------------------------------------------------------------------------------------------

// "after 3 equal operations, "; names the line of the last where that of the next is not known.
std::string equal_text(const Comparison& c) {
  const size_t prefix = c.likeness().prefix;
  const bool named = prefix == c.names.size() || c.now.operations[prefix].site;
  const std::string last = named ? "" : c.now.operations[prefix - 1].site.where();
  return "after " + counted(prefix, "equal operation") +
         (last.empty() ? "" : (prefix == 1 ? "" : ", the last") + last) + ", ";
}

std::string parting_text(const Comparison& c) {
  const auto& before = c.likeness().names;
  const size_t prefix = c.likeness().prefix, both = std::min(before.size(), c.names.size());
  size_t suffix = 0;
  while (prefix + suffix < both &&
         before.rbegin()[static_cast<int64_t>(suffix)] == c.names.rbegin()[static_cast<int64_t>(suffix)])
    ++suffix;
  const std::string where = prefix == 0 ? "at the beginning, " : equal_text(c);
  if (prefix + suffix < both)
    return where + place_text(c.now, prefix) + " is recorded where " + quoted(c.before().form_of(prefix).op) +
           c.before().operations[prefix].site.where() + " was";
  const bool more = c.names.size() > before.size();
  const size_t others = std::max(before.size(), c.names.size()) - both - 1;
  return where + (more ? has_become(place_text(c.now, prefix), others, "recorded")
                       : is_no_longer(place_text(c.before(), prefix), others, "recorded"));
}

// The inputs that results of `program` overwrite and those of `other` do not, by name or else by shape.
std::vector<size_t> updated_only_by(const ProgramSummary& program, const ProgramSummary& other) {
  const auto inputs_of = [](const ProgramSummary& one) {
    std::vector<size_t> inputs;
    for (int leaf : one.aliases) {
      if (leaf >= 0) inputs.push_back(static_cast<size_t>(leaf));
    }
    return inputs;
  };
  const auto names_of = [&](const ProgramSummary& one) {
    Texts names;
    for (size_t input : inputs_of(one)) {
      const auto& [name, shape] = one.inputs[input];
      names.push_back(name.empty() ? to_string(shape) : name);
    }
    return names;
  };
  const std::vector<size_t> all = inputs_of(program);
  std::vector<size_t> only;
  for (size_t position : surplus(names_of(program), names_of(other))) only.push_back(all[position]);
  return only;
}

bool has_input(const ProgramSummary& program, const std::string& name) {
  return std::any_of(program.inputs.begin(), program.inputs.end(),
                     [&](const Input& input) { return input.name == name; });
}

using Words = std::string (*)(const std::string& what, size_t others, const std::string& so);

bool is_parameter(const Input& input) { return input.name.starts_with("parameter "); }

bool updates_parameters(const ProgramSummary& program) {
  return std::any_of(program.aliases.begin(), program.aliases.end(), [&](int leaf) {
    return leaf >= 0 && is_parameter(program.inputs[static_cast<size_t>(leaf)]);
  });
}

// The parameters that only `program` updates, of two that update some; nothing if there are none.
std::string training_text(const ProgramSummary& program, const ProgramSummary& other, Words words,
                          const char* why) {
  std::vector<size_t> inputs = updated_only_by(program, other);
  std::erase_if(inputs, [&](size_t input) { return !is_parameter(program.inputs[input]); });
  if (inputs.empty()) return {};
  return words(input_text(program, inputs[0]), inputs.size() - 1, "trained") + why;
}

Found other_training(const Comparison& c) {
  if (!updates_parameters(c.now) || !updates_parameters(c.before())) return {};
  std::string fact =
      training_text(c.now, c.before(), has_become, ", having a gradient now (thawed, or used by the loss)");
  const std::string lost = training_text(c.before(), c.now, is_no_longer,
                                         ", having no gradient now (frozen, or not used by the loss)");
  if (!fact.empty() && !lost.empty()) fact += "; ";
  fact += lost;
  if (fact.empty()) return {};
  return Finding{
      fact + "; " + parting_text(c),
      "Each set of parameters that are trained together is one program: have few sets, or keep parameters as "
      "they are with a group of their own whose learning rate is 0, which may change at no cost."};
}

// What is updated in `program` only; `absent`: what to add if the other has no such input at all.
std::string update_text(const ProgramSummary& program, const ProgramSummary& other, Words words,
                        const char* absent) {
  const std::vector<size_t> inputs = updated_only_by(program, other);
  if (inputs.empty()) return {};
  const std::string& name = program.inputs[inputs[0]].name;
  const std::string text = words("input " + input_text(program, inputs[0]), inputs.size() - 1, "updated");
  return name.empty() || has_input(other, name) ? text : text + absent;
}

Found other_updates(const Comparison& c) {
  std::string fact = update_text(c.now, c.before(), has_become, ", being new");
  const std::string lost = update_text(c.before(), c.now, is_no_longer, ", being gone");
  if (!fact.empty() && !lost.empty()) fact += "; ";
  fact += lost;
  if (fact.empty()) return {};
  return Finding{
      fact + "; " + parting_text(c),
      "Parameters that are frozen, thawed or tied, optimizer state that the first step makes, and steps "
      "without optimizer.step() do that. Each kind of step is compiled once: have few kinds."};
}

Found unlike_any(const Comparison& c) {
  const Likeness& like = c.likeness();
  if (like.related()) return {};
  const std::string begins = c.now.operations.empty() ? "" : c.now.operations[0].site.where();
  return Finding{
      "it has little in common with any before: of its " + counted(like.kinds_now, "kind") +
          " of operations, the one most like it has " + std::to_string(like.kinds_shared) +
          (begins.empty() ? "" : "; it begins" + begins),
      "Evaluation, and reading a value in the middle of a step, make programs of their own. If more "
      "follow, read values after the step has ended."};
}

Finding other_operation(const Comparison& c) {
  std::string fact = parting_text(c);
  const size_t now = c.now.results.size(), before = c.before().results.size();
  if (now != before) fact += "; it has " + counted(now, "result") + " where it had " + std::to_string(before);
  return {fact, look_for_a_branch};
}

Found other_argument(const Comparison& c) {
  for (size_t i = 0; i < c.names.size(); ++i) {
    const auto &now = c.now.form_of(i), &before = c.before().form_of(i);
    if (now.hash == before.hash) continue;
    for (size_t k = 0; k < std::max(now.arguments.size(), before.arguments.size()); ++k) {
      const std::string is = k < now.arguments.size() ? argument_text(now.arguments[k]) : "nothing";
      const std::string was = k < before.arguments.size() ? argument_text(before.arguments[k]) : "nothing";
      if (is == was) continue;
      return Finding{
          "the " + ordinal(k + 1) + " argument of " + place_text(c.now, i) + " is " + is + " where it was " +
              was,
          "Such an argument is part of the program: keep it the same in every step, or pass a number "
          "that changes as a 0-dimensional tensor on xla where the operation takes one."};
    }
  }
  return {};
}

Found other_operand(const Comparison& c) {
  const auto &now = c.now.operands, &before = c.before().operands;
  const auto same = [&](const Source& a, const Source& b) {
    if (a != b || a.kind != Node::Kind::leaf) return a == b;
    const size_t is = c.now.input_of(a), was = c.before().input_of(b);
    return is == was && c.now.inputs[is].shape == c.before().inputs[was].shape;
  };
  const auto [is, was] = std::mismatch(now.begin(), now.end(), before.begin(), before.end(), same);
  if (is == now.end() || was == before.end()) return {};
  const std::string place = place_text(c.now, taker_of(c.now, static_cast<size_t>(is - now.begin())));
  const std::string source_now = source_text(c.now, *is), source_before = source_text(c.before(), *was);
  if (is->kind == Node::Kind::number && was->kind == Node::Kind::number)
    return Finding{place + " takes another number of the step's, shared with other operations or no more",
                   look_for_a_branch};
  const char* tie_early = "Tie parameters, and untie them, before the first step, and leave them so.";
  const size_t inputs_now = c.now.inputs.size(), inputs_before = c.before().inputs.size();
  const bool both_inputs = is->kind == Node::Kind::leaf && was->kind == Node::Kind::leaf;
  if (both_inputs && source_now == source_before && inputs_now == inputs_before)
    return Finding{place + " takes " + source_now + " through another of the tensors that share its memory",
                   tie_early};
  if (!both_inputs || inputs_now == inputs_before)
    return Finding{place + " takes " + source_now + " where it took " + source_before, look_for_a_branch};
  return Finding{source_before + " and " + source_now +
                     (inputs_now < inputs_before ? " are one tensor now and were two before"
                                                 : " are two tensors now and were one before") +
                     ", in " + place,
                 tie_early};
}

// The operands are the same.
Found other_number(const Comparison& c) {
  for (size_t i = 0; i < c.now.operands.size(); ++i) {
    const Source& operand = c.now.operands[i];
    if (operand.kind != Node::Kind::number) continue;
    const auto number = static_cast<size_t>(operand.index);
    const Dtype now = c.now.numbers[number], before = c.before().numbers[number];
    if (now == before) continue;
    return Finding{"a number that " + place_text(c.now, taker_of(c.now, i)) + " takes is " + name_of(now) +
                       " where it was " + name_of(before),
                   "Write it with a decimal point in every step, or in none."};
  }
  return {};
}

// --- results -----------------------------------------------------------------------------------------------

// What is compared: with the place, if the places of both programs can be, and without the line.
Texts results_to_compare(const ProgramSummary& program, bool placed) {
  Texts texts;
  for (const Source& source : program.results)
    texts.push_back(bare_text(program, source) + (placed ? " " + std::to_string(source.index) : ""));
  return texts;
}

Found other_results(const Comparison& c) {
  const bool placed = c.likeness().same_order();
  const auto told = [&](const ProgramSummary& program, size_t result) {
    return (placed ? source_text : unplaced_text)(program, program.results[result]);
  };
  const Texts now = results_to_compare(c.now, placed), before = results_to_compare(c.before(), placed);
  const std::vector<size_t> more = surplus(now, before), fewer = surplus(before, now);
  const char* advice =
      "A tensor that outlives the step, such as one that is kept to be logged, is a result of the program: "
      "keep the same ones in every step, or none, and numbers that were read after the step instead.";
  std::string fact;
  if (!more.empty()) fact = has_become(told(c.now, more[0]), more.size() - 1, "kept");
  if (!more.empty() && !fewer.empty()) fact += "; ";
  if (!fewer.empty()) fact += is_no_longer(told(c.before(), fewer[0]), fewer.size() - 1, "kept");
  if (!fact.empty()) return Finding{fact, advice};
  if (c.now.results == c.before().results || !placed) return {};
  return Finding{"the same results are kept in another order", "Compute them in one order in every step."};
}

Found other_aliases(const Comparison& c) {
  const auto &now = c.now.aliases, &before = c.before().aliases;
  const auto [is, was] = std::mismatch(now.begin(), now.end(), before.begin(), before.end());
  if (is == now.end()) return {};
  const auto input = [](const ProgramSummary& program, int leaf) {
    return "input " + input_text(program, static_cast<size_t>(leaf));
  };
  std::string fact;
  if (*is >= 0 && *was >= 0)
    fact = input(c.now, *is) + " is overwritten where " + input(c.before(), *was) + " was";
  else
    fact = *is >= 0 ? has_become(input(c.now, *is), 0, "overwritten")
                    : is_no_longer(input(c.before(), *was), 0, "overwritten");
  return Finding{fact, "Write to a tensor in place (add_, copy_) in every step, or in none."};
}

// --- all of it ---------------------------------------------------------------------------------------------

Finding difference(const Comparison& c) {
  using Finder = Found (*)(const Comparison&);
  const Likeness& like = c.likeness();
  std::vector<Finder> finders;
  if (like.related()) finders = {changed_input};
  if (!like.same_operations())
    finders.insert(finders.end(), {other_training, other_updates, other_repetition, unlike_any});
  else if (!like.same_order())
    finders.push_back(other_results);
  else
    finders.insert(finders.end(),
                   {other_argument, other_operand, other_number, other_results, other_aliases});
  for (Finder find : finders) {
    if (Found found = find(c)) return *found;
  }
  if (!like.same_order()) return other_operation(c);
  return {"the operations, inputs and results are those of a program before",
          "If this goes on, it is a fault of ivme: please report it."};
}

std::string first_program(const ProgramSummary& now, const std::string& made) {
  return "A first program was " + made + ": it has " + counted(now.operations.size(), "operation") + " and " +
         counted(now.inputs.size(), "input") +
         ". Steps that record the same operations on the same shapes run without compiling.";
}

// The operations that both programs begin with come from the same lines.
ProgramSummary with_lines_of(const Comparison& c) {
  ProgramSummary now = c.now;
  for (size_t i = 0; i < c.likeness().prefix; ++i) {
    if (!now.operations[i].site) now.operations[i].site = c.before().operations[i].site;
  }
  return now;
}

const char* programs_text(size_t programs) { return programs == 1 ? "there is " : "there are "; }

std::string cost_text(const Cost& cost) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", cost.seconds);
  if (cost.way == Cost::Way::known) return "It had been compiled already";
  return (cost.way == Cost::Way::loaded ? "Reading it from the cache took " : "Compiling took ") +
         std::string(seconds);
}

}  // namespace

std::string difference_from(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now) {
  Comparison c = compare(known, now);
  std::optional<ProgramSummary> with_lines;
  if (!now.has_lines) with_lines = with_lines_of(c);
  const auto [fact, advice] = difference({.now = with_lines ? *with_lines : now,
                                          .names = std::move(c.names),
                                          .known = std::move(c.known),
                                          .nearest = c.nearest});
  return fact + ". " + advice;
}

std::string explain(const std::vector<const ProgramSummary*>& known, const ProgramSummary& now,
                    const Cost& cost) {
  const char* made = cost.way == Cost::Way::compiled ? "compiled" : "needed";
  const std::string text =
      known.empty() ? first_program(now, made)
                    : std::string("Another program was ") + made + ": " + difference_from(known, now);
  const size_t programs = known.size() + 1;
  return text + " " + cost_text(cost) + "; " + programs_text(programs) + counted(programs, "program") +
         " now.";
}

}  // namespace ivme::xla
