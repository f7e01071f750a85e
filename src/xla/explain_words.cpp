#include "xla/explain_words.h"

#include <algorithm>
#include <charconv>

namespace ivme::xla {
namespace {

constexpr size_t most_alternatives = 5;

std::string text_of(int64_t value) { return std::to_string(value); }
// The shortest that reads back as the same number; never like a whole one.
std::string text_of(double value) {
  char digits[32];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

template <class T>
std::string list_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + text_of(value);
  return "[" + text + "]";
}

std::string place_of(const ProgramSummary& program, size_t operation) {
  return " (operation " + std::to_string(operation + 1) + " of " + std::to_string(program.operations.size()) +
         ")";
}

std::string and_more(size_t others) { return others == 0 ? "" : " and " + std::to_string(others) + " more"; }

}  // namespace

std::string counted(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string ordinal(size_t number) {
  const char* ending = number == 1 ? "st" : number == 2 ? "nd" : number == 3 ? "rd" : "th";
  return std::to_string(number) + ending;
}

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

std::string has_become(const std::string& what, size_t others, const std::string& so) {
  return what + and_more(others) + (others == 0 ? " is " : " are ") + so + " now and " +
         (others == 0 ? "was" : "were") + " not before";
}
std::string is_no_longer(const std::string& what, size_t others, const std::string& so) {
  return what + and_more(others) + (others == 0 ? " is" : " are") + " not " + so + " any more";
}

std::string alternatives(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), most_alternatives); ++i) {
    const bool last = i > 0 && i + 1 == numbers.size();
    text += (last ? " or " : i > 0 ? ", " : "") + std::to_string(numbers[i]);
  }
  return numbers.size() > most_alternatives ? text + " or others" : text;
}

std::string argument_text(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::none:
      return "nothing";
    case Argument::Kind::operand:
      return argument.weak ? "a number" : "a tensor";
    case Argument::Kind::operands:
      return "the tensors given in " + list_of(argument.integers);
    case Argument::Kind::integer:
      return text_of(argument.integer);
    case Argument::Kind::real:
      return text_of(argument.real);
    case Argument::Kind::boolean:
      return argument.integer != 0 ? "true" : "false";
    case Argument::Kind::integers:
      return list_of(argument.integers);
    case Argument::Kind::reals:
      return list_of(argument.reals);
    case Argument::Kind::text:
      return quoted(argument.text);
    case Argument::Kind::dtype:
      return name_of(static_cast<Dtype>(argument.integer));
  }
  return {};
}

std::string input_text(const ProgramSummary& program, size_t input) {
  const auto& [name, shape] = program.inputs[input];
  return name.empty() ? "number " + std::to_string(input + 1) + " (" + to_string(shape) + ")" : quoted(name);
}

std::string place_text(const ProgramSummary& program, size_t operation) {
  return quoted(program.form_of(operation).op) + program.operations[operation].site.where() +
         place_of(program, operation);
}

std::string bare_text(const ProgramSummary& program, const ProgramSummary::Source& source) {
  if (source.kind == Node::Kind::leaf) return "input " + input_text(program, program.input_of(source));
  if (source.kind == Node::Kind::number) return "a number";
  const auto& form = program.form_of(static_cast<size_t>(source.index));
  return "the " + to_string(form.shapes[static_cast<size_t>(source.output)]) + " of " + quoted(form.op);
}

std::string unplaced_text(const ProgramSummary& program, const ProgramSummary::Source& source) {
  const std::string text = bare_text(program, source);
  if (source.kind != Node::Kind::operation) return text;
  return text + program.operations[static_cast<size_t>(source.index)].site.where();
}

std::string source_text(const ProgramSummary& program, const ProgramSummary::Source& source) {
  const std::string text = unplaced_text(program, source);
  return source.kind == Node::Kind::operation ? text + place_of(program, static_cast<size_t>(source.index))
                                              : text;
}

}  // namespace ivme::xla
