#pragma once
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "xla/lower/op.h"

// Nodes that the recorder makes itself.
namespace ivme::xla {

const Op& row(std::string_view name);  // throws Error when the table has none of that name

Argument operand(int64_t index);
Argument number(int64_t index);  // an operand that decides no dtype
Argument whole_number(int64_t value);
Argument boolean(bool value);
Argument whole_numbers(c10::ArrayRef<int64_t> values);
Argument dtype_argument(Dtype dtype);

// The value itself where nothing is to be done.
Value cast(Value value, Dtype dtype);
Value expand(Value value, c10::ArrayRef<int64_t> sizes);
Value zeros(const Shape& shape);

}  // namespace ivme::xla
