#include <algorithm>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// One spatial dimension: output o sees the inputs o·stride − padding + k·dilation for k < size.
struct Axis {
  int64_t input, size, stride, padding, dilation, output;

  int64_t place(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
  int64_t dilated_output() const { return output == 0 ? 0 : (output - 1) * stride + 1; }
};

// As at::native::pooling_output_shape: with ceil_mode, a last window must begin inside the input or its left
// padding.
int64_t output_size(const Axis& axis, bool ceil_mode) {
  int64_t span = axis.input + 2 * axis.padding - axis.dilation * (axis.size - 1) - 1;
  int64_t output = (span + (ceil_mode ? axis.stride - 1 : 0)) / axis.stride + 1;
  if (ceil_mode && (output - 1) * axis.stride >= axis.input + axis.padding) --output;
  return output;
}

int64_t entry(const Dims& values, size_t i) { return values.size() == 1 ? values[0] : values.at(i); }

// The last `rank` dimensions of x; the arguments from `first` on are kernel size, stride, padding and then,
// for maximum pools, dilation.
std::vector<Axis> axes_of(const Call& call, const Hlo& x, int rank, int first, bool dilated, bool ceil_mode) {
  std::vector<Axis> axes;
  const Dims &size = call.integers(first), &given = call.integers(first + 1),
             &stride = given.empty() ? size : given;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
    Axis axis{x.dim(static_cast<int>(i) - rank),
              entry(size, i),
              entry(stride, i),
              entry(call.integers(first + 2), i),
              dilated ? entry(call.integers(first + 3), i) : 1,
              0};
    axis.output = output_size(axis, ceil_mode);
    if (axis.output < 1) {
      throw Error("A pool with a window of " + std::to_string(axis.size) + " over a dimension of " +
                  std::to_string(axis.input) +
                  " was asked for on xla. The window is larger than the padded input. "
                  "Use a smaller window, or a larger input.");
    }
    axes.push_back(axis);
  }
  return axes;
}

Dims leading(const Hlo& x, size_t rank) {
  return Dims(x.dims().begin(), x.dims().end() - static_cast<int64_t>(rank));
}

Dims output_dims(const Hlo& x, const std::vector<Axis>& axes) {
  Dims dims = leading(x, axes.size());
  for (const Axis& axis : axes) dims.push_back(axis.output);
  return dims;
}

// Steps to the window's next element, the last dimension fastest; false after the last one.
bool advance(Dims& offset, const std::vector<Axis>& axes) {
  for (size_t i = axes.size(); i-- > 0;) {
    if (++offset[i] < axes[i].size) return true;
    offset[i] = 0;
  }
  return false;
}

// --- maximum
// -------------------------------------------------------------------------------------------------

// The flat positions in the input of one element of every window: i32, of the output's spatial dims.
Hlo positions(Emitter& emitter, const std::vector<Axis>& axes, const std::vector<Dims>& places) {
  int rank = static_cast<int>(axes.size());
  Hlo position = emitter.constant(0, {Dtype::i32, {}});
  for (int i = 0; i < rank; ++i) {
    auto at = static_cast<size_t>(i);
    Hlo place = along(convert(emitter.constants(places[at]), Dtype::i32), i, rank);
    position = position * static_cast<double>(axes[at].input) + place;
  }
  return position;
}

std::vector<Dims> places_of(const std::vector<Axis>& axes, const Dims& offset) {
  std::vector<Dims> places(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    for (int64_t o = 0; o < axes[i].output; ++o) places[i].push_back(axes[i].place(o, offset[i]));
  }
  return places;
}

// The first element of each window that lies in the input: the position of a maximum of −∞.
std::vector<Dims> first_places(const std::vector<Axis>& axes) {
  std::vector<Dims> places(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    for (int64_t o = 0; o < axes[i].output; ++o) {
      int64_t k = 0;
      while (axes[i].place(o, k) < 0) ++k;
      places[i].push_back(axes[i].place(o, k));
    }
  }
  return places;
}

// That element of every window: of the output's dims.
Hlo window_element(const Hlo& padded, const std::vector<Axis>& axes, const Dims& offset) {
  size_t batch = padded.dims().size() - axes.size();
  Dims starts(batch, 0), limits = leading(padded, axes.size()), strides(batch, 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    starts.push_back(offset[i] * axes[i].dilation);
    limits.push_back(starts.back() + axes[i].dilated_output());
    strides.push_back(axes[i].stride);
  }
  return padded.emitter->slice(padded, starts, limits, strides);
}

Hlo pad_to_windows(const Hlo& x, const Hlo& value, const std::vector<Axis>& axes) {
  size_t batch = x.dims().size() - axes.size();
  Dims low(batch, 0), high(batch, 0);
  for (const Axis& axis : axes) {
    low.push_back(axis.padding);
    high.push_back(axis.dilated_output() + axis.dilation * (axis.size - 1) - axis.input - axis.padding);
  }
  return x.emitter->pad(x, value, low, high);
}

template <int rank>
Result max_pool(const Call& call) {  // self, kernel, stride, padding, dilation, ceil_mode
  const Hlo& x = call.tensor(0);
  std::vector<Axis> axes = axes_of(call, x, rank, 1, true, call.boolean(5));
  Hlo lowest = call.emitter.neutral(Reduction::maximum, x.dtype());
  Hlo padded = pad_to_windows(x, lowest, axes);
  Dims dims = output_dims(x, axes), offset(axes.size(), 0);
  Hlo best = call.emitter.broadcast(lowest, dims);
  Hlo index = call.emitter.broadcast(positions(call.emitter, axes, first_places(axes)), dims);
  do {
    Hlo value = window_element(padded, axes, offset), better = value > best;
    if (is_floating(x.dtype())) better = better | is_nan(value);
    best = select(better, value, best);
    index = select(better, positions(call.emitter, axes, places_of(axes, offset)), index);
  } while (advance(offset, axes));
  return {best, convert(index, Dtype::i64)};
}

// Puts one element of every window back to its place in an input of zeros.
Hlo put_back(const Hlo& elements, const std::vector<Axis>& axes, const Dims& offset) {
  size_t batch = elements.dims().size() - axes.size();
  Dims low(batch, 0), high(batch, 0), interior(batch, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    low.push_back(axes[i].place(0, offset[i]));
    high.push_back(axes[i].input - axes[i].dilated_output() - low.back());
    interior.push_back(axes[i].stride - 1);
  }
  Emitter& emitter = *elements.emitter;
  return emitter.pad(elements, emitter.constant(0, {elements.dtype(), {}}), low, high, interior);
}

template <int rank>
Result max_pool_backward(
    const Call& call) {  // gradient, self, kernel, stride, padding, dilation, ceil_mode, indices
  const Hlo& x = call.tensor(1);
  std::vector<Axis> axes = axes_of(call, x, rank, 2, true, call.boolean(6));
  Hlo g = convert(call.tensor(0), compute_type(x.dtype())), index = convert(call.tensor(7), Dtype::i32);
  Dims offset(axes.size(), 0);
  Hlo total = call.emitter.constant(0, {g.dtype(), x.dims()});
  do {
    Hlo here = index == positions(call.emitter, axes, places_of(axes, offset));
    total = total + put_back(select(here, g, 0), axes, offset);
  } while (advance(offset, axes));
  return {convert(total, x.dtype())};
}

// --- average
// -------------------------------------------------------------------------------------------------

// Elements that each window counts along one dimension.
std::vector<double> counted(const Axis& axis, bool include_padding) {
  std::vector<double> counts;
  for (int64_t o = 0; o < axis.output; ++o) {
    int64_t begin = axis.place(o, 0), end = std::min(begin + axis.size, axis.input + axis.padding);
    if (!include_padding) {
      begin = std::max<int64_t>(begin, 0);
      end = std::min(end, axis.input);
    }
    counts.push_back(static_cast<double>(end - begin));
  }
  return counts;
}

// arguments from `first` on: kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
Hlo divided(const Call& call, const Hlo& sums, const std::vector<Axis>& axes, int first) {
  if (call.has(first + 5)) return sums / call.real(first + 5);
  Hlo result = sums;
  for (size_t i = 0; i < axes.size(); ++i) {
    Hlo counts = call.emitter.constants(counted(axes[i], call.boolean(first + 4)), sums.dtype());
    int rank = sums.rank();
    result = result / along(counts, rank - static_cast<int64_t>(axes.size() - i), rank);
  }
  return result;
}

Hlo window_sums(const Hlo& padded, const std::vector<Axis>& axes, bool strided) {
  size_t batch = padded.dims().size() - axes.size();
  Dims zeros(padded.dims().size(), 0);
  Window window{Dims(batch, 1), Dims(batch, 1), zeros, zeros, {}, {}};
  for (const Axis& axis : axes) {
    window.size.push_back(axis.size);
    window.stride.push_back(strided ? axis.stride : 1);
  }
  return padded.emitter->reduce_window(Reduction::add, padded, window);
}

template <int rank>
Result average_pool(const Call& call) {
  Hlo x = convert(call.tensor(0), compute_type(call.tensor(0).dtype()));
  std::vector<Axis> axes = axes_of(call, x, rank, 1, false, call.boolean(4));
  Hlo padded = pad_to_windows(x, call.emitter.constant(0, {x.dtype(), {}}), axes);
  return {convert(divided(call, window_sums(padded, axes, true), axes, 1), call.tensor(0).dtype())};
}

// Each input sums up the windows that see it: a window over the gradient, spread by the stride.
template <int rank>
Result average_pool_backward(const Call& call) {  // gradient, self, then as average_pool
  const Hlo& x = call.tensor(1);
  Hlo g = convert(call.tensor(0), compute_type(x.dtype()));
  std::vector<Axis> axes = axes_of(call, x, rank, 2, false, call.boolean(5));
  g = divided(call, g, axes, 2);
  size_t batch = x.dims().size() - axes.size();
  Dims low(batch, 0), high(batch, 0), interior(batch, 0);
  for (const Axis& axis : axes) {
    low.push_back(axis.size - 1 - axis.padding);
    high.push_back(axis.input + axis.size - 1 - axis.dilated_output() - low.back());
    interior.push_back(axis.stride - 1);
  }
  Hlo spread = call.emitter.pad(g, call.emitter.constant(0, {g.dtype(), {}}), low, high, interior);
  return {convert(window_sums(spread, axes, false), x.dtype())};
}

// --- unfold and fold
// -----------------------------------------------------------------------------------------

// kernel, dilation, padding, stride from `first` on
std::vector<Axis> folding_axes(const Call& call, const Dims& input, int first) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < 2; ++i) {
    Axis axis{input[i],
              entry(call.integers(first), i),
              entry(call.integers(first + 3), i),
              entry(call.integers(first + 2), i),
              entry(call.integers(first + 1), i),
              0};
    axis.output = output_size(axis, false);
    axes.push_back(axis);
  }
  return axes;
}

Hlo with_batch(const Hlo& x, int rank) { return x.rank() == rank ? x : unsqueeze(x, 0); }
Hlo without_batch(const Hlo& y, bool batched) {
  return batched ? y : y.emitter->reshape(y, Dims(y.dims().begin() + 1, y.dims().end()));
}

// Each window as a column: [N, C · kernel, windows].
Result unfold(const Call& call) {  // self, kernel, dilation, padding, stride
  const Hlo x = with_batch(call.tensor(0), 4);
  std::vector<Axis> axes = folding_axes(call, {x.dim(2), x.dim(3)}, 1);
  Hlo padded = pad_to_windows(x, call.emitter.constant(0, {x.dtype(), {}}), axes);
  std::vector<Hlo> elements;
  Dims offset(2, 0);
  do elements.push_back(unsqueeze(window_element(padded, axes, offset), 2));
  while (advance(offset, axes));
  Hlo columns = call.emitter.reshape(
      call.emitter.concatenate(elements, 2),
      {x.dim(0), x.dim(1) * static_cast<int64_t>(elements.size()), axes[0].output * axes[1].output});
  return {without_batch(columns, call.tensor(0).rank() == 4)};
}

// Its adjoint: each input is the sum of what its windows hold.
Result fold(const Call& call) {  // self, output sizes, kernel, dilation, padding, stride
  const Hlo given = with_batch(call.tensor(0), 3);
  std::vector<Axis> axes = folding_axes(call, call.integers(1), 2);
  const int64_t elements = axes[0].size * axes[1].size, channels = given.dim(1) / elements;
  Hlo columns = call.emitter.reshape(convert(given, compute_type(given.dtype())),
                                     {given.dim(0), channels, elements, axes[0].output, axes[1].output});
  Hlo total =
      call.emitter.constant(0, {columns.dtype(), {given.dim(0), channels, axes[0].input, axes[1].input}});
  Dims offset(2, 0);
  int64_t element = 0;
  do {
    Hlo own = call.emitter.reshape(slice_dim(columns, 2, element, element + 1),
                                   {given.dim(0), channels, axes[0].output, axes[1].output});
    total = total + put_back(own, axes, offset);
    ++element;
  } while (advance(offset, axes));
  return {without_batch(convert(total, given.dtype()), call.tensor(0).rank() == 3)};
}

}  // namespace

Rows pooling_rows() {
  return {
      {"aten::max_pool2d_with_indices", max_pool<2>},
      {"aten::max_pool2d_with_indices_backward", max_pool_backward<2>},
      {"aten::max_pool3d_with_indices", max_pool<3>},
      {"aten::max_pool3d_with_indices_backward", max_pool_backward<3>},
      {"aten::im2col", unfold},
      {"aten::col2im", fold},
      {"aten::avg_pool2d", average_pool<2>},
      {"aten::avg_pool2d_backward", average_pool_backward<2>},
      {"aten::avg_pool3d", average_pool<3>},
      {"aten::avg_pool3d_backward", average_pool_backward<3>},
  };
}

}  // namespace ivme::xla
