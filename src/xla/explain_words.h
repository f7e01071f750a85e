#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "xla/explain.h"

namespace ivme::xla {

// The words of explain(). Operations, inputs and arguments are counted from 1, as people count.

std::string counted(size_t count, const std::string& noun);  // "1 row", "2 rows"
std::string ordinal(size_t number);                          // "2nd"; for numbers below 21
std::string quoted(std::string_view name);
// "x and 3 more are kept now and were not before", "x is not kept any more".
std::string has_become(const std::string& what, size_t others, const std::string& so);
std::string is_no_longer(const std::string& what, size_t others, const std::string& so);
std::string alternatives(const std::vector<int64_t>& numbers);  // "16, 64 or 5"; only the first few of many

// Differs for two arguments in one place that make two programs; operands are "a tensor".
std::string argument_text(const Argument& argument);
std::string input_text(const ProgramSummary& program, size_t input);  // "'data'", or its number and shape
// "'aten::mm' at train.cpp:87 (operation 3 of 10)".
std::string place_text(const ProgramSummary& program, size_t operation);
// "the tensor<2x3xf32> of 'aten::mm' at train.cpp:87 (operation 3 of 10)", "input 'data'"; without the place
// in parentheses; without the line as well, which may differ where programs do not.
std::string source_text(const ProgramSummary& program, const ProgramSummary::Source& source);
std::string unplaced_text(const ProgramSummary& program, const ProgramSummary::Source& source);
std::string bare_text(const ProgramSummary& program, const ProgramSummary::Source& source);

}  // namespace ivme::xla
