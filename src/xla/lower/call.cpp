#include "ivme/error.h"
#include "xla/lower/op.h"

namespace ivme::xla {
namespace {

[[noreturn]] void refuse(int argument, const char* wanted) {
  throw Error(
      "Argument " + std::to_string(argument) + " of an operation on xla was read as " + wanted +
      ", and was recorded as something else. The arguments must be in the order of the schema of its row.");
}

}  // namespace

const Argument& Call::argument(int argument) const {
  if (argument < 0 || argument >= count()) refuse(argument, "an argument that is there");
  return arguments_[static_cast<size_t>(argument)];
}

bool Call::has(int argument) const { return this->argument(argument).kind != Argument::Kind::none; }

const Hlo& Call::tensor(int argument) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind != Argument::Kind::operand) refuse(argument, "a tensor");
  return operands_[static_cast<size_t>(asked.integer)];
}

std::vector<Hlo> Call::tensors(int argument) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind != Argument::Kind::operands) refuse(argument, "a list of tensors");
  std::vector<Hlo> list;
  auto next = static_cast<size_t>(asked.integer);
  for (int64_t defined : asked.integers) {
    if (defined != 0) list.push_back(operands_[next++]);
  }
  return list;
}

int64_t Call::integer(int argument) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind != Argument::Kind::integer && asked.kind != Argument::Kind::boolean)
    refuse(argument, "an integer");
  return asked.integer;
}

bool Call::boolean(int argument) const { return integer(argument) != 0; }

double Call::real(int argument) const {
  const Argument& asked = this->argument(argument);
  return asked.kind == Argument::Kind::real ? asked.real : static_cast<double>(integer(argument));
}

const Dims& Call::integers(int argument) const {
  static const Dims none;
  const Argument& asked = this->argument(argument);
  if (asked.kind == Argument::Kind::none) return none;
  if (asked.kind != Argument::Kind::integers) refuse(argument, "a list of integers");
  return asked.integers;
}

const std::string& Call::text(int argument) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind != Argument::Kind::text) refuse(argument, "a word");
  return asked.text;
}

std::optional<Dtype> Call::dtype(int argument) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind == Argument::Kind::none) return std::nullopt;
  if (asked.kind != Argument::Kind::dtype) refuse(argument, "a dtype");
  return static_cast<Dtype>(asked.integer);
}

Hlo Call::scalar(int argument, Dtype dtype) const {
  const Argument& asked = this->argument(argument);
  if (asked.kind == Argument::Kind::operand)
    return emitter.reshape(emitter.convert(tensor(argument), dtype), {});
  if (asked.kind == Argument::Kind::real) return emitter.constant(asked.real, {dtype, {}});
  return emitter.constant(integer(argument), {dtype, {}});
}

bool Call::is_constant(int argument, double value) const {
  const Argument& asked = this->argument(argument);
  return asked.kind == Argument::Kind::real ? asked.real == value
         : asked.kind == Argument::Kind::integer || asked.kind == Argument::Kind::boolean
             ? static_cast<double>(asked.integer) == value
             : false;
}

}  // namespace ivme::xla
