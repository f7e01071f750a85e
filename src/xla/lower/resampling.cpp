#include <algorithm>
#include <cmath>

#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// Each output along a dimension is a weighted sum of a few inputs, as many for all: output o takes weight[o]
// of input index[o] from each tap.
struct Tap {
  Dims index;
  std::vector<double> weight;
};
using Taps = std::vector<Tap>;

Hlo indices(Emitter& emitter, const Tap& tap) {
  return emitter.reshape(emitter.constants(tap.index), {static_cast<int64_t>(tap.index.size()), 1});
}
IndexDimensions along_only(const Hlo& x, int64_t dimension) {
  Dims window = range(0, x.rank());
  window.erase(window.begin() + dimension);
  return {{dimension}, window};
}

// A weight of 0 takes nothing, not even what is infinite.
Hlo weighted(const Hlo& x, const Tap& tap, int64_t dimension) {
  if (std::all_of(tap.weight.begin(), tap.weight.end(), [](double w) { return w == 1; })) return x;
  Hlo weight = along(x.emitter->constants(tap.weight, x.dtype()), dimension, x.rank());
  return select(weight == 0.0, 0, x * weight);
}

Hlo resample(const Hlo& x, int64_t dimension, const Taps& taps) {
  Hlo total;
  for (const Tap& tap : taps) {
    Hlo taken = x.emitter->gather(x, indices(*x.emitter, tap), along_only(x, dimension));
    taken = weighted(taken, tap, dimension);
    total = total.emitter == nullptr ? taken : total + taken;
  }
  return total;
}

// The adjoint: what each input gave.
Hlo resample_back(const Hlo& g, int64_t dimension, const Taps& taps, int64_t input) {
  Dims dims = g.dims();
  dims[static_cast<size_t>(dimension)] = input;
  Hlo total = g.emitter->constant(0, {g.dtype(), dims});
  const Reduction add = Reduction::add;
  for (const Tap& tap : taps) {
    total = g.emitter->scatter(total, indices(*g.emitter, tap), weighted(g, tap, dimension),
                               along_only(g, dimension), &add);
  }
  return total;
}

// --- how one dimension is resampled
// --------------------------------------------------------------------------

struct Resizing {
  int64_t input, output;
  std::optional<double> scale;  // output over input, where the caller gave it

  double step() const {
    return scale && *scale > 0 ? 1 / *scale : static_cast<double>(input) / static_cast<double>(output);
  }
};

// The index is computed in f32, as PyTorch's kernels do.
Taps nearest(const Resizing& r, float shift) {
  Tap tap{{}, std::vector<double>(static_cast<size_t>(r.output), 1)};
  float step = r.scale && *r.scale > 0 ? static_cast<float>(1 / *r.scale)
                                       : static_cast<float>(r.input) / static_cast<float>(r.output);
  for (int64_t o = 0; o < r.output; ++o) {
    auto place = static_cast<int64_t>(std::floor((static_cast<float>(o) + shift) * step));
    tap.index.push_back(std::min(place, r.input - 1));
  }
  return {tap};
}

// Where among the inputs an output lies.
template <class Real>
Real place_of(const Resizing& r, bool align_corners, int64_t output) {
  const auto o = static_cast<Real>(output);
  if (!align_corners) return (o + Real(0.5)) * static_cast<Real>(r.step()) - Real(0.5);
  return r.output > 1 ? o * (static_cast<Real>(r.input - 1) / static_cast<Real>(r.output - 1)) : 0;
}

template <class Real>
Taps linear(const Resizing& r, bool align_corners) {
  Tap left, right;
  for (int64_t o = 0; o < r.output; ++o) {
    Real place = place_of<Real>(r, align_corners, o);
    place = std::max(place, Real(0));
    int64_t begin = std::min(static_cast<int64_t>(place), r.input - 1);
    Real part = std::min(std::max(place - static_cast<Real>(begin), Real(0)), Real(1));
    left.index.push_back(begin);
    left.weight.push_back(static_cast<double>(1 - part));
    right.index.push_back(std::min(begin + 1, r.input - 1));
    right.weight.push_back(static_cast<double>(part));
  }
  return {left, right};
}

// The cubic convolution with a = −0.75, over four inputs.
template <class Real>
Taps cubic(const Resizing& r, bool align_corners) {
  constexpr Real a = Real(-0.75);
  auto near = [](Real x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  auto far = [](Real x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Taps taps(4);
  for (int64_t o = 0; o < r.output; ++o) {
    Real place = place_of<Real>(r, align_corners, o);
    Real begin = std::floor(place), part = place - begin;
    const Real weights[] = {far(part + 1), near(part), near(1 - part), far(2 - part)};
    for (int64_t i = 0; i < 4; ++i) {
      Tap& tap = taps[static_cast<size_t>(i)];
      tap.index.push_back(std::clamp<int64_t>(static_cast<int64_t>(begin) - 1 + i, 0, r.input - 1));
      tap.weight.push_back(static_cast<double>(weights[i]));
    }
  }
  return taps;
}

// The mean of the inputs from ⌊o·in/out⌋ to ⌈(o+1)·in/out⌉.
Taps adaptive(const Resizing& r) {
  Taps taps;
  for (int64_t o = 0; o < r.output; ++o) {
    int64_t begin = o * r.input / r.output, end = ((o + 1) * r.input + r.output - 1) / r.output;
    while (static_cast<int64_t>(taps.size()) < end - begin) {
      taps.push_back(
          {Dims(static_cast<size_t>(r.output), 0), std::vector<double>(static_cast<size_t>(r.output), 0)});
    }
    for (int64_t i = begin; i < end; ++i) {
      Tap& tap = taps[static_cast<size_t>(i - begin)];
      tap.index[static_cast<size_t>(o)] = i;
      tap.weight[static_cast<size_t>(o)] = 1 / static_cast<double>(end - begin);
    }
  }
  return taps;
}

// --- operations
// ----------------------------------------------------------------------------------------------

enum class Mode { nearest, nearest_exact, linear, cubic };
constexpr bool has_corners(Mode mode) { return mode == Mode::linear || mode == Mode::cubic; }

std::optional<double> scale_of(const Call& call, int argument) {
  return call.has(argument) ? std::optional(call.real(argument)) : std::nullopt;
}

Taps taps_of(const Resizing& r, Mode mode, bool align_corners, Dtype dtype) {
  if (mode == Mode::nearest) return nearest(r, 0);
  if (mode == Mode::nearest_exact) return nearest(r, 0.5F);
  if (mode == Mode::cubic)
    return dtype == Dtype::f64 ? cubic<double>(r, align_corners) : cubic<float>(r, align_corners);
  return dtype == Dtype::f64 ? linear<double>(r, align_corners) : linear<float>(r, align_corners);
}

// self, output sizes[, align_corners], scales
template <Mode mode, int rank>
Result upsample(const Call& call) {
  const Hlo& x = call.tensor(0);
  constexpr int first = has_corners(mode) ? 3 : 2;
  Hlo y = convert(x, compute_type(x.dtype()));
  for (int i = 0; i < rank; ++i) {
    Resizing r{x.dim(2 + i), call.integers(1)[static_cast<size_t>(i)], scale_of(call, first + i)};
    y = resample(y, 2 + i, taps_of(r, mode, has_corners(mode) && call.boolean(2), x.dtype()));
  }
  return {convert(y, x.dtype())};
}

// gradient, output sizes, input sizes[, align_corners], scales
template <Mode mode, int rank>
Result upsample_backward(const Call& call) {
  const Hlo& g = call.tensor(0);
  constexpr int first = has_corners(mode) ? 4 : 3;
  Hlo x = convert(g, compute_type(g.dtype()));
  for (int i = 0; i < rank; ++i) {
    Resizing r{call.integers(2)[static_cast<size_t>(i) + 2], g.dim(2 + i), scale_of(call, first + i)};
    x = resample_back(x, 2 + i, taps_of(r, mode, has_corners(mode) && call.boolean(3), g.dtype()), r.input);
  }
  return {convert(x, g.dtype())};
}

// Padding with what is inside, mirrored at the border, or with the border itself.
Tap mirrored(int64_t input, int64_t low, int64_t high) {
  Tap tap;
  for (int64_t o = -low; o < input + high; ++o) {
    int64_t place = o < 0 ? -o : o;
    tap.index.push_back(place < input ? place : 2 * (input - 1) - place);
  }
  tap.weight.assign(tap.index.size(), 1);
  return tap;
}
Tap repeated(int64_t input, int64_t low, int64_t high) {
  Tap tap;
  for (int64_t o = -low; o < input + high; ++o) tap.index.push_back(std::clamp<int64_t>(o, 0, input - 1));
  tap.weight.assign(tap.index.size(), 1);
  return tap;
}
using Border = Tap (*)(int64_t input, int64_t low, int64_t high);

template <Border border>
Result pad_border(const Call& call) {  // self, padding from the last dimension, low and high
  Hlo x = call.tensor(0);
  const Dims& padding = call.integers(1);
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    int64_t dimension = x.rank() - 1 - static_cast<int64_t>(i), size = x.dim(static_cast<int>(dimension));
    x = resample(x, dimension, {border(size, padding[2 * i], padding[2 * i + 1])});
  }
  return {x};
}

template <Border border>
Result pad_border_backward(const Call& call) {  // gradient, self, padding
  const Hlo &g = call.tensor(0), &x = call.tensor(1);
  const Dims& padding = call.integers(2);
  Hlo y = convert(g, compute_type(g.dtype()));
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    int64_t dimension = x.rank() - 1 - static_cast<int64_t>(i), size = x.dim(static_cast<int>(dimension));
    y = resample_back(y, dimension, {border(size, padding[2 * i], padding[2 * i + 1])}, size);
  }
  return {convert(y, g.dtype())};
}

// Steps to the next element of a window, the last dimension fastest; false after the last one.
bool next(Dims& elements, const std::vector<Taps>& taps) {
  for (size_t i = elements.size(); i-- > 0;) {
    if (++elements[i] < static_cast<int64_t>(taps[i].size())) return true;
    elements[i] = 0;
  }
  return false;
}

template <int rank>
Result adaptive_average(const Call& call) {  // self, output sizes
  const Hlo& x = call.tensor(0);
  Hlo y = convert(x, compute_type(x.dtype()));
  for (int i = 0; i < rank; ++i) {
    int64_t dimension = x.rank() - rank + i, input = x.dim(i - rank),
            output = call.integers(1)[static_cast<size_t>(i)];
    if (output == 1)
      y = mean(y, {dimension});
    else
      y = resample(y, dimension, adaptive({input, output, {}}));
  }
  return {convert(y, x.dtype())};
}

template <int rank>
Result adaptive_average_backward(const Call& call) {  // gradient, self
  const Hlo &g = call.tensor(0), &x = call.tensor(1);
  Hlo y = convert(g, compute_type(g.dtype()));
  for (int i = 0; i < rank; ++i) {
    int64_t dimension = x.rank() - rank + i, input = x.dim(i - rank), output = g.dim(i - rank);
    Dims dims = y.dims();
    dims[static_cast<size_t>(dimension)] = input;
    if (output == 1)
      y = call.emitter.broadcast(y / static_cast<double>(input), dims);
    else
      y = resample_back(y, dimension, adaptive({input, output, {}}), input);
  }
  return {convert(y, g.dtype())};
}

// (maxima, their flat places). Windows differ in size, so each element of the largest is looked at by all;
// where a window has no such element, its first is looked at again.
template <int rank>
Result adaptive_maximum(const Call& call) {  // self, output sizes
  const Hlo& x = call.tensor(0);
  std::vector<Taps> taps;
  Dims elements(rank, 0);
  for (int i = 0; i < rank; ++i) {
    Taps& own = taps.emplace_back(adaptive({x.dim(i - rank), call.integers(1)[static_cast<size_t>(i)], {}}));
    for (Tap& tap : own)
      for (size_t o = 0; o < tap.index.size(); ++o)
        if (tap.weight[o] == 0) tap.index[o] = own[0].index[o];
  }
  std::optional<Hlo> best, place;
  do {
    Hlo value = x, here = call.emitter.constant(0, {Dtype::i64, {}});
    for (int i = 0; i < rank; ++i) {
      const Tap& tap = taps[static_cast<size_t>(i)][static_cast<size_t>(elements[static_cast<size_t>(i)])];
      value = call.emitter.gather(value, indices(call.emitter, tap), along_only(value, x.rank() - rank + i));
      here = here * static_cast<double>(x.dim(i - rank)) +
             along(call.emitter.constants(tap.index), x.rank() - rank + i, x.rank());
    }
    here = call.emitter.broadcast(here, value.dims());
    if (!best) {
      best = value;
      place = here;
      continue;
    }
    Hlo better = value > *best;
    if (is_floating(x.dtype())) better = better | is_nan(value);
    best = select(better, value, *best);
    place = select(better, here, *place);
  } while (next(elements, taps));
  return {*best, *place};
}

}  // namespace

Rows resampling_rows() {
  return {
      {"aten::upsample_nearest1d", upsample<Mode::nearest, 1>},
      {"aten::upsample_nearest1d_backward", upsample_backward<Mode::nearest, 1>},
      {"aten::upsample_nearest2d", upsample<Mode::nearest, 2>},
      {"aten::upsample_nearest2d_backward", upsample_backward<Mode::nearest, 2>},
      {"aten::_upsample_nearest_exact1d", upsample<Mode::nearest_exact, 1>},
      {"aten::_upsample_nearest_exact1d_backward", upsample_backward<Mode::nearest_exact, 1>},
      {"aten::_upsample_nearest_exact3d", upsample<Mode::nearest_exact, 3>},
      {"aten::_upsample_nearest_exact3d_backward", upsample_backward<Mode::nearest_exact, 3>},
      {"aten::_upsample_nearest_exact2d", upsample<Mode::nearest_exact, 2>},
      {"aten::_upsample_nearest_exact2d_backward", upsample_backward<Mode::nearest_exact, 2>},
      {"aten::upsample_linear1d", upsample<Mode::linear, 1>},
      {"aten::upsample_linear1d_backward", upsample_backward<Mode::linear, 1>},
      {"aten::upsample_bilinear2d", upsample<Mode::linear, 2>},
      {"aten::upsample_bilinear2d_backward", upsample_backward<Mode::linear, 2>},
      {"aten::upsample_nearest3d", upsample<Mode::nearest, 3>},
      {"aten::upsample_nearest3d_backward", upsample_backward<Mode::nearest, 3>},
      {"aten::upsample_trilinear3d", upsample<Mode::linear, 3>},
      {"aten::upsample_trilinear3d_backward", upsample_backward<Mode::linear, 3>},
      {"aten::upsample_bicubic2d", upsample<Mode::cubic, 2>},
      {"aten::upsample_bicubic2d_backward", upsample_backward<Mode::cubic, 2>},
      {"aten::reflection_pad3d", pad_border<mirrored>},
      {"aten::reflection_pad3d_backward", pad_border_backward<mirrored>},
      {"aten::replication_pad3d", pad_border<repeated>},
      {"aten::replication_pad3d_backward", pad_border_backward<repeated>},
      {"aten::reflection_pad1d", pad_border<mirrored>},
      {"aten::reflection_pad1d_backward", pad_border_backward<mirrored>},
      {"aten::reflection_pad2d", pad_border<mirrored>},
      {"aten::reflection_pad2d_backward", pad_border_backward<mirrored>},
      {"aten::replication_pad1d", pad_border<repeated>},
      {"aten::replication_pad1d_backward", pad_border_backward<repeated>},
      {"aten::replication_pad2d", pad_border<repeated>},
      {"aten::replication_pad2d_backward", pad_border_backward<repeated>},
      {"aten::_adaptive_avg_pool2d", adaptive_average<2>},
      {"aten::_adaptive_avg_pool2d_backward", adaptive_average_backward<2>},
      {"aten::_adaptive_avg_pool3d", adaptive_average<3>},
      {"aten::_adaptive_avg_pool3d_backward", adaptive_average_backward<3>},
      {"aten::adaptive_max_pool2d", adaptive_maximum<2>},
      {"aten::adaptive_max_pool3d", adaptive_maximum<3>},
  };
}

}  // namespace ivme::xla
