#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

Result cast(const Call& call) { return {convert(call.tensor(0), call.dtype(1).value_or(Dtype::f32))}; }
Result expand(const Call& call) { return {call.emitter.broadcast(call.tensor(0), call.integers(1))}; }

Result full(const Call& call) {
  Dtype dtype = call.dtype(0).value_or(Dtype::f32);
  return {call.emitter.broadcast(call.scalar(2, dtype), call.integers(1))};
}

// start + step · position along a dimension; for floating dtypes in f64, as PyTorch's arange.
Result iota(const Call& call) {
  Dtype dtype = call.dtype(0).value_or(Dtype::f32);
  Hlo position = call.emitter.iota({Dtype::i64, call.integers(1)}, static_cast<int>(call.integer(2)));
  if (call.count() == 3) return {convert(position, dtype)};
  Dtype compute = is_floating(dtype) ? Dtype::f64 : Dtype::i64;
  return {convert(convert(position, compute) * call.scalar(4, compute) + call.scalar(3, compute), dtype)};
}

}  // namespace

Rows creation_rows() {
  return {
      {"ivme::cast", cast},                 // x; dtype
      {"ivme::expand", expand},             // x; sizes
      {"ivme::full", full, varying<2>},     // dtype, sizes, number
      {"ivme::iota", iota, varying<3, 4>},  // dtype, sizes, dimension[, start, step]
  };
}

}  // namespace ivme::xla
