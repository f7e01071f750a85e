#include "xla/trace/arguments.h"

#include "ivme/error.h"

namespace ivme::xla {
namespace {

Argument of(Argument::Kind kind, int64_t integer) {
  Argument argument;
  argument.kind = kind;
  argument.integer = integer;
  return argument;
}

}  // namespace

const Op& row(std::string_view name) {
  const Op* op = find_op(name);
  if (!op)
    throw Error("The operation " + std::string(name) +
                " is needed, but is not in the table of XLA operations.");
  return *op;
}

Argument operand(int64_t index) { return of(Argument::Kind::operand, index); }

Argument number(int64_t index) {
  Argument argument = operand(index);
  argument.weak = true;
  return argument;
}

Argument whole_number(int64_t value) { return of(Argument::Kind::integer, value); }

Argument boolean(bool value) { return of(Argument::Kind::boolean, value); }

Argument whole_numbers(c10::ArrayRef<int64_t> values) {
  Argument argument = of(Argument::Kind::integers, 0);
  argument.integers = values.vec();
  return argument;
}

Argument dtype_argument(Dtype dtype) { return of(Argument::Kind::dtype, static_cast<int64_t>(dtype)); }

Value cast(Value value, Dtype dtype) {
  if (value.shape().dtype == dtype) return value;
  static const Op& op = row("ivme::cast");
  return {make_operation(op, {std::move(value)}, {operand(0), dtype_argument(dtype)})};
}

Value expand(Value value, c10::ArrayRef<int64_t> sizes) {
  if (c10::ArrayRef<int64_t>(value.shape().dims) == sizes) return value;
  static const Op& op = row("ivme::expand");
  return {make_operation(op, {std::move(value)}, {operand(0), whole_numbers(sizes)})};
}

Value zeros(const Shape& shape) {
  static const Op& op = row("ivme::full");
  Argument nought;
  nought.kind = Argument::Kind::real;
  return {make_operation(op, {}, {dtype_argument(shape.dtype), whole_numbers(shape.dims), nought})};
}

}  // namespace ivme::xla
