#include "xla/lower/promotion.h"

#include <algorithm>

namespace ivme::xla {
namespace {

int kind(Dtype dtype) { return is_floating(dtype) ? 2 : dtype == Dtype::boolean ? 0 : 1; }

std::optional<Dtype> join(std::optional<Dtype> a, Dtype b) { return a ? promote(*a, b) : b; }

// `higher` decides, unless `lower` is of a higher kind.
std::optional<Dtype> combine(std::optional<Dtype> higher, std::optional<Dtype> lower) {
  if (!higher || !lower) return higher ? higher : lower;
  if (is_floating(*higher)) return higher;
  if (*higher == Dtype::boolean || is_floating(*lower)) return promote(*higher, *lower);
  return higher;
}

}  // namespace

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (kind(a) != kind(b)) return kind(a) > kind(b) ? a : b;
  if (is_floating(a)) {
    if (a == Dtype::f64 || b == Dtype::f64) return Dtype::f64;
    return Dtype::f32;  // also of f16 with bf16
  }
  if (size_of(a) == size_of(b)) return Dtype::i16;  // i8 with u8
  return size_of(a) > size_of(b) ? a : b;
}

void ResultType::add(const Hlo& tensor, bool weak) {
  Dtype dtype = tensor.shape.dtype;
  if (weak) {
    numbers_ = join(numbers_, is_floating(dtype) ? Dtype::f32 : dtype);
  } else if (tensor.rank() > 0) {
    with_dims_ = join(with_dims_, dtype);
  } else {
    without_dims_ = join(without_dims_, dtype);
  }
}

void ResultType::add_argument(const Call& call, int argument) {
  const Argument& asked = call.argument(argument);
  switch (asked.kind) {
    case Argument::Kind::none:
      return;
    case Argument::Kind::operand:
      return add(call.tensor(argument), asked.weak);
    case Argument::Kind::real:
      numbers_ = join(numbers_, Dtype::f32);
      return;
    case Argument::Kind::boolean:
      numbers_ = join(numbers_, Dtype::boolean);
      return;
    default:
      call.integer(argument);
      numbers_ = join(numbers_, Dtype::i64);
  }
}

Dtype ResultType::dtype() const {
  return combine(with_dims_, combine(without_dims_, numbers_)).value_or(Dtype::f32);
}

Dtype result_type(const Call& call, std::initializer_list<int> arguments) {
  ResultType type;
  for (int argument : arguments) type.add_argument(call, argument);
  return type.dtype();
}

Dtype floating_type(Dtype dtype) { return is_floating(dtype) ? dtype : Dtype::f32; }
Dtype compute_type(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16 ? Dtype::f32 : dtype; }
Dtype sum_type(Dtype dtype) { return is_floating(dtype) ? dtype : Dtype::i64; }

}  // namespace ivme::xla
