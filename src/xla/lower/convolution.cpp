#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// How a convolution slides: y[o] = Σ_k x[o·stride − padding + k·dilation] · w[k], in each spatial dimension.
struct Sliding {
  Dims stride, padding, dilation;
  int64_t groups;
};

int spatial_rank(const Hlo& x) { return x.rank() - 2; }
int64_t space(const Hlo& x, int i) { return x.dim(i + 2); }
size_t at(int i) { return static_cast<size_t>(i); }

// "b, f" → "[b, f, 0, 1]"
std::string labels(const char* first_two, int rank) {
  std::string text = std::string("[") + first_two;
  for (int i = 0; i < rank; ++i) text += ", " + std::to_string(i);
  return text + "]";
}
std::string dimension_numbers(const char* x, const char* kernel, const char* result, int rank) {
  return labels(x, rank) + "x" + labels(kernel, rank) + "->" + labels(result, rank);
}

// A list of one value stands for all spatial dimensions.
Dims spatial(const Dims& values, int rank) { return values.size() == 1 ? Dims(at(rank), values[0]) : values; }

// The plain convolution of x [N, C, …] with w [D, C/groups, …]. What follows the last whole window is ignored
// or made up, so that the result has these spatial sizes.
Hlo correlate(const Hlo& x, const Hlo& w, const Sliding& s, const Dims& sizes) {
  int rank = spatial_rank(x);
  Window window{{}, s.stride, s.padding, {}, Dims(at(rank), 1), s.dilation};
  Dims result{x.dim(0), w.dim(0)};
  for (int i = 0; i < rank; ++i) {
    int64_t reach = s.dilation[at(i)] * (space(w, i) - 1) + 1;
    window.high.push_back((sizes[at(i)] - 1) * s.stride[at(i)] + reach - space(x, i) - s.padding[at(i)]);
    result.push_back(sizes[at(i)]);
  }
  return x.emitter->convolve(x, w,
                             {dimension_numbers("b, f", "o, i", "b, f", rank), window, s.groups, 1, result},
                             compute_type(x.dtype()));
}

// Its adjoint in x: y [N, D, …] and w [D, C/groups, …] give [N, C, …] with these spatial sizes.
Hlo transposed(const Hlo& y, const Hlo& w, const Sliding& s, const Dims& sizes) {
  int rank = spatial_rank(y);
  int64_t inner = w.dim(1), outer = w.dim(0) / s.groups;
  Window window{{}, Dims(at(rank), 1), {}, {}, s.stride, s.dilation};
  Dims result{y.dim(0), inner * s.groups}, grouped{s.groups, outer, inner}, order{1, 0, 2},
      kernel{outer, result[1]};
  Dims flipped;
  for (int i = 0; i < rank; ++i) {
    int64_t reach = s.dilation[at(i)] * (space(w, i) - 1);
    window.low.push_back(reach - s.padding[at(i)]);
    window.high.push_back(sizes[at(i)] + reach - ((space(y, i) - 1) * s.stride[at(i)] + 1) -
                          window.low.back());
    result.push_back(sizes[at(i)]);
    grouped.push_back(space(w, i));
    order.push_back(i + 3);
    kernel.push_back(space(w, i));
    flipped.push_back(i + 2);
  }
  Emitter& emitter = *y.emitter;
  Hlo turned = emitter.reshape(emitter.transpose(emitter.reshape(w, grouped), order), kernel);
  return emitter.convolve(y, emitter.reverse(turned, flipped),
                          {dimension_numbers("b, f", "i, o", "b, f", rank), window, s.groups, 1, result},
                          compute_type(y.dtype()));
}

// Its adjoint in w: x [N, C, …] and y [N, D, …] give [D, C/groups, …] with these spatial sizes.
Hlo kernel_gradient(const Hlo& x, const Hlo& y, const Sliding& s, const Dims& sizes) {
  int rank = spatial_rank(x);
  Window window{{}, s.dilation, s.padding, {}, Dims(at(rank), 1), s.stride};
  Dims result{y.dim(1), x.dim(1) / s.groups};
  for (int i = 0; i < rank; ++i) {
    int64_t reach = (space(y, i) - 1) * s.stride[at(i)] + 1 + s.dilation[at(i)] * (sizes[at(i)] - 1);
    window.high.push_back(reach - space(x, i) - s.padding[at(i)]);
    result.push_back(sizes[at(i)]);
  }
  return x.emitter->convolve(x, y,
                             {dimension_numbers("f, b", "i, o", "f, b", rank), window, 1, s.groups, result},
                             compute_type(x.dtype()));
}

Dims spatial_sizes(const Hlo& x) { return Dims(x.dims().begin() + 2, x.dims().end()); }

Sliding sliding_of(const Call& call, int first, int rank) {
  return {spatial(call.integers(first), rank), spatial(call.integers(first + 1), rank),
          spatial(call.integers(first + 2), rank), call.integer(first + 5)};
}

Hlo with_bias(const Call& call, const Hlo& y) {
  return call.has(2) ? y + along(convert(call.tensor(2), y.dtype()), 1, y.rank()) : y;
}

// input, weight, bias, stride, padding, dilation, transposed, output padding, groups
Result convolution(const Call& call) {
  const Hlo &x = call.tensor(0), &w = call.tensor(1);
  int rank = spatial_rank(x);
  Sliding s = sliding_of(call, 3, rank);
  bool is_transposed = call.boolean(6);
  if (x.rank() != w.rank() || rank < 1 || x.dim(1) != (is_transposed ? w.dim(0) : w.dim(1) * s.groups)) {
    throw Error("A convolution of " + to_string(x.shape) + " with weights " + to_string(w.shape) + " in " +
                std::to_string(s.groups) +
                " groups was to be recorded on xla. The channels of the input are not those "
                "that the weights take. Check the layer's channels.");
  }
  Dims extra = spatial(call.integers(7), rank), sizes;
  for (int i = 0; i < rank; ++i) {
    int64_t stride = s.stride[at(i)], reach = s.dilation[at(i)] * (space(w, i) - 1) + 1,
            both = 2 * s.padding[at(i)];
    sizes.push_back(is_transposed ? (space(x, i) - 1) * stride - both + reach + extra[at(i)]
                                  : (space(x, i) + both - reach) / stride + 1);
  }
  Hlo y = is_transposed ? transposed(x, w, s, sizes) : correlate(x, w, s, sizes);
  return {convert(with_bias(call, y), x.dtype())};
}

// gradient, input, weight, stride, padding, dilation, transposed, output padding, groups, output mask
Result convolution_backward(const Call& call) {
  const Hlo &g = call.tensor(0), &x = call.tensor(1), &w = call.tensor(2);
  Sliding s = sliding_of(call, 3, spatial_rank(x));
  bool is_transposed = call.boolean(6);
  const Dims& wanted = call.integers(9);
  Hlo none = call.emitter.constant(0, {x.dtype(), {0}});
  Result result{none, none, none};
  if (wanted[0] != 0) {
    Dims sizes = spatial_sizes(x);
    result[0] = convert(is_transposed ? correlate(g, w, s, sizes) : transposed(g, w, s, sizes), x.dtype());
  }
  if (wanted[1] != 0) {
    Dims sizes = spatial_sizes(w);
    result[1] =
        convert(is_transposed ? kernel_gradient(g, x, s, sizes) : kernel_gradient(x, g, s, sizes), w.dtype());
  }
  if (wanted[2] != 0) {
    Dims all = range(0, g.rank());
    all.erase(all.begin() + 1);
    result[2] = convert(sum(convert(g, compute_type(g.dtype())), all, false), g.dtype());
  }
  return result;
}

}  // namespace

Rows convolution_rows() {
  return {
      {"aten::convolution_overrideable", convolution},
      {"aten::convolution_backward_overrideable", convolution_backward},
  };
}

}  // namespace ivme::xla
