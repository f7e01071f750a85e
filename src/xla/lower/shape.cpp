#include <algorithm>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

Hlo zero_of(const Hlo& x) { return x.emitter->constant(0, {x.dtype(), {}}); }

Result concatenate(const Call& call) {
  std::vector<Hlo> all = call.tensors(0), parts;
  ResultType type;
  for (const Hlo& part : all) {
    type.add(part, false);
    if (part.dims() != Dims{0}) parts.push_back(part);
  }
  for (Hlo& part : parts) part = convert(part, type.dtype());
  if (parts.empty()) return {convert(all.at(0), type.dtype())};
  return {call.emitter.concatenate(parts, static_cast<int>(wrap(call.integer(1), parts[0].rank())))};
}

Result pad(const Call& call) {  // self, pad (from the last dimension, low and high), value
  const Hlo& x = call.tensor(0);
  const Dims& amounts = call.integers(1);
  Dims low(x.dims().size(), 0), high = low;
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    low[low.size() - 1 - i] = amounts[2 * i];
    high[high.size() - 1 - i] = amounts[2 * i + 1];
  }
  return {call.emitter.pad(x, call.scalar(2, x.dtype()), low, high)};
}

Result flip(const Call& call) {
  const Hlo& x = call.tensor(0);
  if (call.integers(1).empty()) return {x};
  return {call.emitter.reverse(x, wrap(call.integers(1), x.rank()))};
}

Hlo rolled(const Hlo& x, int64_t dimension, int64_t shift) {
  int64_t size = x.dim(static_cast<int>(dimension));
  int64_t cut = size == 0 ? 0 : ((-shift % size) + size) % size;
  if (cut == 0) return x;
  return x.emitter->concatenate({slice_dim(x, dimension, cut, size), slice_dim(x, dimension, 0, cut)},
                                static_cast<int>(dimension));
}

Result roll(const Call& call) {  // self, shifts, dims
  const Hlo& x = call.tensor(0);
  const Dims &shifts = call.integers(1), &dimensions = call.integers(2);
  if (dimensions.empty()) {
    Hlo flat = call.emitter.reshape(x, {x.shape.count()});
    return {call.emitter.reshape(rolled(flat, 0, shifts.at(0)), x.dims())};
  }
  Hlo result = x;
  for (size_t i = 0; i < dimensions.size(); ++i)
    result = rolled(result, wrap(dimensions[i], x.rank()), shifts.at(i));
  return {result};
}

// Row and column of each element, against the diagonal.
template <bool lower>
Result triangle(const Call& call) {
  const Hlo& x = call.tensor(0);
  if (x.rank() < 2) {
    throw Error("A triangle of " + to_string(x.shape) +
                " was asked for on xla. It takes a matrix, or a batch of "
                "matrices. Give the tensor two dimensions at least.");
  }
  Shape shape{Dtype::i64, {x.dim(-2), x.dim(-1)}};
  Hlo row = call.emitter.iota(shape, 0) + static_cast<double>(call.integer(1)),
      column = call.emitter.iota(shape, 1);
  return {select(lower ? column <= row : column >= row, x, 0)};
}

// The gradient's place in zeros of the input's sizes.
Result slice_backward(const Call& call) {  // gradient, input sizes, dim, start, end, step
  const Hlo& g = call.tensor(0);
  const Dims& sizes = call.integers(1);
  auto at = static_cast<size_t>(wrap(call.integer(2), g.rank()));
  int64_t size = sizes[at], step = call.integer(5), start = call.integer(3);
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  int64_t length = g.dims()[at];
  if (length == 0) return {call.emitter.constant(0, {g.dtype(), sizes})};
  Dims low(sizes.size(), 0), high = low, interior = low;
  low[at] = start;
  interior[at] = step - 1;
  high[at] = size - start - ((length - 1) * step + 1);
  return {call.emitter.pad(g, zero_of(g), low, high, interior)};
}

Result select_backward(const Call& call) {  // gradient, input sizes, dim, index
  const Dims& sizes = call.integers(1);
  auto at = static_cast<size_t>(wrap(call.integer(2), static_cast<int>(sizes.size())));
  Hlo g = unsqueeze(call.tensor(0), static_cast<int64_t>(at));
  int64_t index = call.integer(3) < 0 ? call.integer(3) + sizes[at] : call.integer(3);
  Dims low(sizes.size(), 0), high = low;
  low[at] = index;
  high[at] = sizes[at] - index - 1;
  return {call.emitter.pad(g, zero_of(g), low, high)};
}

// Windows of `size` that begin every `step` elements; where they overlap, gradients add up.
Result unfold_backward(const Call& call) {  // gradient (windows last), input sizes, dim, size, step
  const Hlo& g = call.tensor(0);
  const Dims& sizes = call.integers(1);
  auto at = static_cast<size_t>(wrap(call.integer(2), static_cast<int>(sizes.size())));
  int64_t step = call.integer(4), windows = g.dims()[at];
  Dtype compute = compute_type(g.dtype());
  if (sizes.empty()) return {call.emitter.reshape(g, sizes)};
  Hlo total = call.emitter.constant(0, {compute, sizes});
  for (int64_t k = 0; k < call.integer(3); ++k) {
    Hlo part = slice_dim(g, g.rank() - 1, k, k + 1);
    part = convert(call.emitter.reshape(part, Dims(g.dims().begin(), g.dims().end() - 1)), compute);
    Dims low(sizes.size(), 0), high = low, interior = low;
    low[at] = k;
    interior[at] = step - 1;
    high[at] = sizes[at] - k - ((windows - 1) * step + 1);
    total = total + call.emitter.pad(part, zero_of(part), low, high, interior);
  }
  return {convert(total, g.dtype())};
}

Result copy(const Call& call) {  // self, source
  const Hlo& x = call.tensor(0);
  return {call.emitter.broadcast(convert(call.tensor(1), x.dtype()), x.dims())};
}

Result repeat(const Call& call) {
  const Hlo& x = call.tensor(0);
  const Dims& repeats = call.integers(1);
  Dims from(repeats.size() - x.dims().size(), 1), spread, interleaved, result;
  from.insert(from.end(), x.dims().begin(), x.dims().end());
  for (size_t i = 0; i < repeats.size(); ++i) {
    interleaved.insert(interleaved.end(), {1, from[i]});
    spread.insert(spread.end(), {repeats[i], from[i]});
    result.push_back(repeats[i] * from[i]);
  }
  return {call.emitter.reshape(call.emitter.broadcast(call.emitter.reshape(x, interleaved), spread), result)};
}

}  // namespace

Rows shape_rows() {
  return {
      {"aten::cat", concatenate},
      {"aten::constant_pad_nd", pad, varying<2>},
      {"aten::flip", flip},
      {"aten::roll", roll},
      {"aten::tril", triangle<true>},
      {"aten::triu", triangle<false>},
      {"aten::slice_backward", slice_backward},
      {"aten::select_backward", select_backward},
      {"aten::unfold_backward", unfold_backward},
      {"aten::copy", copy},
      {"aten::repeat", repeat},
  };
}

}  // namespace ivme::xla
