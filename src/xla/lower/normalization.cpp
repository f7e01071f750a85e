#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

Hlo computed(const Hlo& x) { return convert(x, compute_type(x.dtype())); }
Hlo none(const Call& call, Dtype dtype) { return call.emitter.constant(0, {dtype, {0}}); }

struct Statistics {
  Hlo mean, inverse;  // 1/√(variance + eps), both with the reduced dimensions kept as 1
};
// Two passes.
Statistics statistics(const Hlo& x, const Dims& dimensions, double eps) {
  Hlo center = mean(x, dimensions), offset = x - center;
  return {center, rsqrt(mean(offset * offset, dimensions) + eps)};
}

// The gradient of x̂ = (x − mean)·inverse in x, where mean and inverse come from x itself. `g`: the gradient
// of x̂.
Hlo centered_gradient(const Hlo& g, const Hlo& normalized, const Hlo& inverse, const Dims& dimensions) {
  return (g - mean(g, dimensions) - normalized * mean(g * normalized, dimensions)) * inverse;
}

// --- layer norm
// ----------------------------------------------------------------------------------------------

Result layer_norm(const Call& call) {  // input, normalized shape, weight, bias, eps
  const Hlo& input = call.tensor(0);
  Hlo x = computed(input);
  int first = x.rank() - static_cast<int>(call.integers(1).size());
  Statistics s = statistics(x, range(first, x.rank()), call.real(4));
  Hlo y = (x - s.mean) * s.inverse;
  if (call.has(2)) y = y * convert(call.tensor(2), y.dtype());
  if (call.has(3)) y = y + convert(call.tensor(3), y.dtype());
  return {convert(y, input.dtype()), s.mean, s.inverse};
}

// gradient, input, normalized shape, mean, inverse deviation, weight, bias, output mask
Result layer_norm_backward(const Call& call) {
  const Hlo& input = call.tensor(1);
  Hlo g = computed(call.tensor(0)), x = computed(input);
  Hlo mean = convert(call.tensor(3), x.dtype()), inverse = convert(call.tensor(4), x.dtype());
  const Dims &sizes = call.integers(2), &wanted = call.integers(7);
  int first = x.rank() - static_cast<int>(sizes.size());
  Hlo normalized = (x - mean) * inverse;
  Dtype parameter = call.has(5) ? call.tensor(5).dtype() : input.dtype();
  Result result{none(call, input.dtype()), none(call, parameter), none(call, parameter)};
  if (wanted[0] != 0) {
    Hlo weighted = call.has(5) ? g * convert(call.tensor(5), g.dtype()) : g;
    result[0] =
        convert(centered_gradient(weighted, normalized, inverse, range(first, x.rank())), input.dtype());
  }
  auto over_rows = [&](const Hlo& y) { return call.emitter.reshape(sum(y, range(0, first), false), sizes); };
  if (wanted[1] != 0) result[1] = convert(over_rows(g * normalized), parameter);
  if (wanted[2] != 0) result[2] = convert(over_rows(g), parameter);
  return result;
}

// --- batch norm
// ----------------------------------------------------------------------------------------------

Dims all_but_channels(const Hlo& x) {
  Dims dimensions = range(0, x.rank());
  dimensions.erase(dimensions.begin() + 1);
  return dimensions;
}

Hlo channels(const Hlo& vector, const Hlo& x) { return along(convert(vector, x.dtype()), 1, x.rank()); }

// input, weight, bias, running mean, running variance, training, momentum, eps. The running statistics are
// updated by whoever records the operation.
Result batch_norm(const Call& call) {
  const Hlo& input = call.tensor(0);
  Hlo x = computed(input);
  bool training = call.boolean(5);
  Statistics s =
      training ? statistics(x, all_but_channels(x), call.real(7))
               : Statistics{channels(call.tensor(3), x), rsqrt(channels(call.tensor(4), x) + call.real(7))};
  Hlo y = (x - s.mean) * s.inverse;
  if (call.has(1)) y = y * channels(call.tensor(1), x);
  if (call.has(2)) y = y + channels(call.tensor(2), x);
  if (!training) return {convert(y, input.dtype()), none(call, x.dtype()), none(call, x.dtype())};
  Dims vector{x.dim(1)};
  return {convert(y, input.dtype()), call.emitter.reshape(s.mean, vector),
          call.emitter.reshape(s.inverse, vector)};
}

// gradient, input, weight, running mean, running variance, saved mean, saved inverse deviation, training,
// eps, mask
Result batch_norm_backward(const Call& call) {
  const Hlo& input = call.tensor(1);
  Hlo g = computed(call.tensor(0)), x = computed(input);
  bool training = call.boolean(7);
  const Dims& wanted = call.integers(9);
  Dims dimensions = all_but_channels(x);
  Statistics s =
      training ? Statistics{channels(call.tensor(5), x), channels(call.tensor(6), x)}
               : Statistics{channels(call.tensor(3), x), rsqrt(channels(call.tensor(4), x) + call.real(8))};
  Hlo normalized = (x - s.mean) * s.inverse;
  Dtype parameter = call.has(2) ? call.tensor(2).dtype() : input.dtype();
  Result result{none(call, input.dtype()), none(call, parameter), none(call, parameter)};
  if (wanted[0] != 0) {
    Hlo weighted = call.has(2) ? g * channels(call.tensor(2), x) : g;
    Hlo gradient =
        training ? centered_gradient(weighted, normalized, s.inverse, dimensions) : weighted * s.inverse;
    result[0] = convert(gradient, input.dtype());
  }
  if (wanted[1] != 0) result[1] = convert(sum(g * normalized, dimensions, false), parameter);
  if (wanted[2] != 0) result[2] = convert(sum(g, dimensions, false), parameter);
  return result;
}

// --- group norm
// ----------------------------------------------------------------------------------------------

// As [N, groups, channels of a group, the rest].
struct Grouped {
  int64_t batch, groups, channels, rest;
  Dims dims() const { return {batch, groups, channels, rest}; }
};
Grouped grouped(const Call& call, int first) {  // N, C, HxW, groups
  int64_t groups = call.integer(first + 3);
  return {call.integer(first), groups, call.integer(first + 1) / groups, call.integer(first + 2)};
}
Hlo per_channel(const Call& call, const Hlo& vector, const Grouped& group, Dtype dtype) {
  return convert(call.emitter.reshape(vector, {1, group.groups, group.channels, 1}), dtype);
}

Result group_norm(const Call& call) {  // input, weight, bias, N, C, HxW, groups, eps
  const Hlo& input = call.tensor(0);
  Grouped group = grouped(call, 3);
  Hlo x = call.emitter.reshape(computed(input), group.dims());
  Statistics s = statistics(x, {2, 3}, call.real(7));
  Hlo y = (x - s.mean) * s.inverse;
  if (call.has(1)) y = y * per_channel(call, call.tensor(1), group, x.dtype());
  if (call.has(2)) y = y + per_channel(call, call.tensor(2), group, x.dtype());
  Dims saved{group.batch, group.groups};
  return {convert(call.emitter.reshape(y, input.dims()), input.dtype()), call.emitter.reshape(s.mean, saved),
          call.emitter.reshape(s.inverse, saved)};
}

Result group_norm_backward(
    const Call& call) {  // gradient, input, mean, inverse, weight, N, C, HxW, groups, mask
  const Hlo& input = call.tensor(1);
  Grouped group = grouped(call, 5);
  const Dims& wanted = call.integers(9);
  Hlo g = call.emitter.reshape(computed(call.tensor(0)), group.dims());
  Hlo x = call.emitter.reshape(computed(input), group.dims());
  Dims saved{group.batch, group.groups, 1, 1}, vector{group.groups * group.channels};
  Hlo mean = call.emitter.reshape(convert(call.tensor(2), x.dtype()), saved);
  Hlo inverse = call.emitter.reshape(convert(call.tensor(3), x.dtype()), saved);
  Hlo normalized = (x - mean) * inverse;
  Dtype parameter = call.has(4) ? call.tensor(4).dtype() : input.dtype();
  Result result{none(call, input.dtype()), none(call, parameter), none(call, parameter)};
  if (wanted[0] != 0) {
    Hlo weighted = call.has(4) ? g * per_channel(call, call.tensor(4), group, x.dtype()) : g;
    Hlo gradient = centered_gradient(weighted, normalized, inverse, {2, 3});
    result[0] = convert(call.emitter.reshape(gradient, input.dims()), input.dtype());
  }
  auto over_samples = [&](const Hlo& y) {
    return convert(call.emitter.reshape(sum(y, {0, 3}), vector), parameter);
  };
  if (wanted[1] != 0) result[1] = over_samples(g * normalized);
  if (wanted[2] != 0) result[2] = over_samples(g);
  return result;
}

}  // namespace

Rows normalization_rows() {
  return {
      {"aten::native_layer_norm", layer_norm}, {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::native_batch_norm", batch_norm}, {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_group_norm", group_norm}, {"aten::native_group_norm_backward", group_norm_backward},
  };
}

}  // namespace ivme::xla
