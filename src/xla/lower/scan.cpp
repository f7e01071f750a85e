#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// In log₂ n steps (Hillis and Steele): after step s, each element combines the 2^s before it.
template <Hlo (*combine)(const Hlo&, const Hlo&), Reduction reduction>
Result scan(const Call& call) {  // self, dim, dtype
  const Hlo& x = call.tensor(0);
  Dtype dtype = call.dtype(2).value_or(sum_type(x.dtype()));
  Hlo y = convert(x, compute_type(dtype));
  int64_t dimension = wrap(call.integer(1), x.rank()),
          size = x.rank() == 0 ? 1 : x.dim(static_cast<int>(dimension));
  Hlo neutral = call.emitter.neutral(reduction, y.dtype());
  for (int64_t shift = 1; shift < size; shift *= 2) {
    Dims low(x.dims().size(), 0), high = low;
    low[static_cast<size_t>(dimension)] = shift;
    high[static_cast<size_t>(dimension)] = -shift;
    y = combine(y, call.emitter.pad(y, neutral, low, high));
  }
  return {convert(y, dtype)};
}

Result sort(const Call& call) {  // self, stable, dim, descending
  const Hlo& x = call.tensor(0);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  return call.emitter.sort(x, static_cast<int>(wrap(call.integer(2), x.rank())), call.boolean(3));
}

Result top_k(const Call& call) {  // self, k, dim, largest, sorted
  const Hlo& x = call.tensor(0);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  int64_t dimension = wrap(call.integer(2), x.rank()), k = call.integer(1);
  if (k > x.dim(static_cast<int>(dimension))) {
    throw Error("topk of " + std::to_string(k) + " elements was asked for on xla, along a dimension of " +
                std::to_string(x.dim(static_cast<int>(dimension))) + ". Ask for that many at most.");
  }
  Result sorted = call.emitter.sort(x, static_cast<int>(dimension), call.boolean(3));
  return {slice_dim(sorted[0], dimension, 0, k), slice_dim(sorted[1], dimension, 0, k)};
}

}  // namespace

Rows scan_rows() {
  return {
      {"aten::cumsum", scan<(operator+), Reduction::add>},
      {"aten::cumprod", scan<(operator*), Reduction::multiply>},
      {"aten::sort.stable", sort},
      {"aten::topk", top_k},
  };
}

}  // namespace ivme::xla
