#include <cmath>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// In log₂ n steps (Hillis and Steele): after step s, each element combines the 2^s before it.
template <Hlo (*combine)(const Hlo&, const Hlo&), Reduction reduction>
Result scan(const Call& call) {  // self, dim[, dtype]
  const Hlo& x = call.tensor(0);
  Dtype dtype = (call.count() > 2 ? call.dtype(2) : std::nullopt).value_or(sum_type(x.dtype()));
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

Hlo log_add_exp(const Hlo& a, const Hlo& b) {
  Hlo greater = maximum(a, b);
  return select(abs(greater) == INFINITY, greater, greater + log1p(exp(-abs(a - b))));
}

// The extreme so far, and where it was first met last: among equals the later one, as PyTorch says.
template <Hlo (*before)(const Hlo&, const Hlo&), Reduction reduction>
Result extremes(const Call& call) {  // self, dim
  Hlo x = call.tensor(0);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  const int64_t dimension = wrap(call.integer(1), x.rank()), size = x.dim(static_cast<int>(dimension));
  Hlo place = call.emitter.iota({Dtype::i64, x.dims()}, static_cast<int>(dimension));
  Hlo neutral = call.emitter.neutral(reduction, x.dtype());
  for (int64_t shift = 1; shift < size; shift *= 2) {
    Dims low(x.dims().size(), 0), high = low;
    low[static_cast<size_t>(dimension)] = shift;
    high[static_cast<size_t>(dimension)] = -shift;
    Hlo earlier = call.emitter.pad(x, neutral, low, high);
    Hlo earlier_place = call.emitter.pad(place, call.emitter.constant(0, {Dtype::i64, {}}), low, high);
    Hlo first =
        call.emitter.iota({Dtype::i64, x.dims()}, static_cast<int>(dimension)) >= static_cast<double>(shift);
    Hlo takes = before(earlier, x) & first;
    if (is_floating(x.dtype())) takes = (takes | (is_nan(earlier) & first)) & ~is_nan(x);
    x = select(takes, earlier, x);
    place = select(takes, earlier_place, place);
  }
  return {x, place};
}

// The element that is at this place when sorted, and where it was.
Result at_place(const Call& call, const std::vector<Hlo>& sorted, int64_t dimension, int64_t place,
                bool keep) {
  Result result;
  for (const Hlo& all : sorted) {
    Hlo one = slice_dim(all, dimension, place, place + 1);
    result.push_back(keep ? one : call.emitter.reshape(one, without(one.dims(), {dimension})));
  }
  return result;
}

Result kth_value(const Call& call) {  // self, k, dim, keepdim
  const Hlo& x = call.tensor(0);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  int64_t dimension = wrap(call.integer(2), x.rank()), k = call.integer(1);
  if (k < 1 || k > x.dim(static_cast<int>(dimension))) {
    throw Error("kthvalue was asked for element " + std::to_string(k) + " on xla, of " +
                std::to_string(x.dim(static_cast<int>(dimension))) + ". Elements are counted from 1.");
  }
  return at_place(call, call.emitter.sort(x, static_cast<int>(dimension), false), dimension, k - 1,
                  call.boolean(3));
}

// The lower one of the two in the middle; what is not a number counts as the median where there is one.
Result median_along(const Call& call, const Hlo& x, int64_t dimension, bool keep) {
  const int64_t size = x.dim(static_cast<int>(dimension));
  std::vector<Hlo> sorted = call.emitter.sort(x, static_cast<int>(dimension), false);
  Result middle = at_place(call, sorted, dimension, (size - 1) / 2, keep);
  if (!is_floating(x.dtype())) return middle;
  Result last = at_place(call, sorted, dimension, size - 1, keep);
  Hlo broken = is_nan(last[0]);
  Hlo first_broken =
      reduce(Reduction::minimum,
             select(is_nan(x), call.emitter.iota({Dtype::i64, x.dims()}, static_cast<int>(dimension)),
                    static_cast<double>(size)),
             {dimension}, keep);
  return {select(broken, last[0], middle[0]), select(broken, first_broken, middle[1])};
}
Result median_dim(const Call& call) {  // self, dim, keepdim
  const Hlo& x = call.tensor(0);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  return median_along(call, x, wrap(call.integer(1), x.rank()), call.boolean(2));
}
Result median(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {median_along(call, call.emitter.reshape(x, {x.shape.count()}), 0, false)[0]};
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
      {"aten::_logcumsumexp", scan<log_add_exp, Reduction::maximum>},
      {"aten::cummax", extremes<(operator>), Reduction::maximum>},
      {"aten::cummin", extremes<(operator<), Reduction::minimum>},
      {"aten::kthvalue", kth_value},
      {"aten::median", median},
      {"aten::median.dim", median_dim},
      {"aten::sort.stable", sort},
      {"aten::topk", top_k},
  };
}

}  // namespace ivme::xla
