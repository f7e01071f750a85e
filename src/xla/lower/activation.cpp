#include <cmath>
#include <numbers>

#include "xla/lower/elementwise.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// Of (gradient, input or output); the formula sees both in the dtype of computation.
using Slope = Hlo (*)(const Hlo& gradient, const Hlo& x);
template <Slope slope>
Result gradient(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(slope(e(0), e(1)));
}

using Function = Hlo (*)(const Hlo& x);
template <Function function>
Result activation(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  return e.result(function(e(0)));
}

Hlo tanh_slope(const Hlo& g, const Hlo& y) { return g * (1 - y * y); }
Hlo sigmoid_slope(const Hlo& g, const Hlo& y) { return g * (1 - y) * y; }

Hlo relu(const Hlo& x) { return maximum(x, 0); }

Result threshold(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  return e.result(select(e(0) <= e(1), e(2), e(0)));
}
Result threshold_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(select(e(1) <= e(2), 0, e(0)));
}

Hlo silu(const Hlo& x) { return x / (1 + exp(-x)); }
Hlo silu_slope(const Hlo& g, const Hlo& x) {
  Hlo y = sigmoid(x);
  return g * y * (1 + x * (1 - y));
}

Hlo softplus_of(const Hlo& x) { return maximum(x, 0) + log1p(exp(-abs(x))); }
Hlo mish(const Hlo& x) { return x * tanh(softplus_of(x)); }
Hlo mish_slope(const Hlo& g, const Hlo& x) {
  Hlo y = tanh(softplus_of(x)), s = sigmoid(x);
  return g * (y + x * s * (1 - y * y));
}

Hlo hardsigmoid(const Hlo& x) { return minimum(maximum(x + 3, 0), 6) / 6; }
Hlo hardsigmoid_slope(const Hlo& g, const Hlo& x) { return select((x > -3.0) & (x < 3.0), g / 6, 0); }
Hlo hardswish(const Hlo& x) { return x * minimum(maximum(x + 3, 0), 6) / 6; }
Hlo hardswish_slope(const Hlo& g, const Hlo& x) {
  return select(x <= -3.0, 0, select(x < 3.0, g * (x / 3 + 0.5), g));
}

// --- gelu
// ----------------------------------------------------------------------------------------------------

constexpr double tanh_factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double tanh_cubic = 0.044715;

Result gelu(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo x = e(0);
  if (call.text(1) == "tanh")
    return e.result(0.5 * x * (1 + tanh(tanh_factor * (x + tanh_cubic * (x * x * x)))));
  return e.result(x * 0.5 * (1 + erf(x * (std::numbers::sqrt2 / 2))));
}

Result gelu_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo g = e(0), x = e(1);
  if (call.text(2) != "tanh") {
    Hlo cdf = 0.5 * (1 + erf(x * (std::numbers::sqrt2 / 2)));
    Hlo pdf = exp(x * x * -0.5) * (std::numbers::sqrt2 / 2 * std::numbers::inv_sqrtpi);
    return e.result(g * (cdf + x * pdf));
  }
  Hlo inner = tanh(tanh_factor * (x + tanh_cubic * (x * x * x)));
  Hlo left = 0.5 * (1 + inner);
  Hlo right = 0.5 * x * (1 - inner * inner) * (tanh_factor * (1 + 3 * tanh_cubic * (x * x)));
  return e.result(g * (left + right));
}

// --- with parameters
// -----------------------------------------------------------------------------------------

Result leaky_relu(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  return e.result(select(e(0) > 0.0, e(0), e(0) * e(1)));
}
Result leaky_relu_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(select(e(1) > 0.0, e(0), e(0) * e(2)));
}

Result elu(const Call& call) {  // alpha, scale, input scale
  Elementwise e(call, call.tensor(0).dtype());
  Hlo x = e(0);
  double alpha = call.real(1), scale = call.real(2), input_scale = call.real(3);
  return e.result(select(x < 0.0, expm1(x * input_scale) * (alpha * scale), x * scale));
}
Result elu_backward(const Call& call) {  // gradient, alpha, scale, input scale, is_result, self or result
  Elementwise e(call, {0, 5});
  Hlo g = e(0), x = e(5);
  double alpha = call.real(1), scale = call.real(2), input_scale = call.real(3);
  Hlo below = call.boolean(4) ? g * input_scale * (x + alpha * scale)
                              : g * (input_scale * alpha * scale) * exp(x * input_scale);
  return e.result(select(x <= 0.0, below, g * scale));
}

Result hardtanh(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  return e.result(minimum(maximum(e(0), e(1)), e(2)));
}
Result hardtanh_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(select((e(1) <= e(2)) | (e(1) >= e(3)), 0, e(0)));
}

Result softplus(const Call& call) {  // beta, threshold
  Elementwise e(call, call.tensor(0).dtype());
  double beta = call.real(1);
  Hlo x = e(0), scaled = x * beta;
  return e.result(select(scaled > call.real(2), x, log1p(exp(scaled)) / beta));
}
Result softplus_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo scaled = e(1) * call.real(2), power = exp(scaled);
  return e.result(select(scaled > call.real(3), e(0), e(0) * power / (power + 1)));
}

Result softshrink(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo x = e(0), edge = e(1);
  return e.result(select(x > edge, x - edge, select(x < -edge, x + edge, x * 0)));
}

Result hardshrink(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo x = e(0), edge = e(1);
  return e.result(select((x >= -edge) & (x <= edge), 0, x));
}
Result shrink_backward(const Call& call) {  // of softshrink and hardshrink
  Elementwise e(call, {0, 1});
  Hlo x = e(1), edge = e(2);
  return e.result(select((x >= -edge) & (x <= edge), 0, e(0)));
}

// (output, buffer); PyTorch's CPU kernel keeps exp(−|x|) in the buffer.
Result log_sigmoid(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo buffer = exp(-abs(e(0)));
  return {e.result(minimum(e(0), 0) - log1p(buffer))[0], e.result(buffer)[0]};
}
Result log_sigmoid_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(e(0) * sigmoid(-e(1)));
}

// With eps, x is kept between eps and 1 − eps; without, what is outside [0, 1] is not a number.
Result logit(const Call& call) {
  Elementwise e(call, floating_type(call.tensor(0).dtype()));
  Hlo x = e(0);
  if (call.has(1)) x = minimum(maximum(x, call.real(1)), 1 - call.real(1));
  return e.result(log(x / (1 - x)));
}
Result logit_backward(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo x = e(1);
  const double low = call.has(2) ? call.real(2) : 0, outside = call.has(2) ? 0 : NAN;
  return e.result(select((x < low) | (x > 1 - low), outside, e(0) / (x * (1 - x))));
}

Result prelu(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(select(e(0) > 0.0, e(0), e(0) * e(1)));
}
Result prelu_backward(const Call& call) {
  Elementwise e(call, {0, 1, 2});
  Hlo g = e(0), x = e(1);
  return {e.result(select(x > 0.0, g, g * e(2)))[0], e.result(select(x > 0.0, 0, g * x))[0]};
}

struct Halves {
  Hlo first, second;
};
Halves halves(const Hlo& x, int64_t dimension) {
  int64_t size = x.dim(static_cast<int>(dimension));
  return {slice_dim(x, dimension, 0, size / 2), slice_dim(x, dimension, size / 2, size)};
}
Result glu(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Halves half = halves(e(0), wrap(call.integer(1), call.tensor(0).rank()));
  return e.result(half.first * sigmoid(half.second));
}
Result glu_backward(const Call& call) {
  Elementwise e(call, call.tensor(1).dtype());
  int64_t dimension = wrap(call.integer(2), call.tensor(1).rank());
  Halves half = halves(e(1), dimension);
  Hlo gate = sigmoid(half.second), first = e(0) * gate;
  return e.result(
      call.emitter.concatenate({first, first * half.first * (1 - gate)}, static_cast<int>(dimension)));
}

}  // namespace

Rows activation_rows() {
  return {
      {"aten::tanh_backward", gradient<tanh_slope>},
      {"aten::sigmoid_backward", gradient<sigmoid_slope>},
      {"aten::relu", activation<relu>},
      {"aten::threshold", threshold},
      {"aten::threshold_backward", threshold_backward},
      {"aten::gelu", gelu},
      {"aten::gelu_backward", gelu_backward},
      {"aten::silu", activation<silu>},
      {"aten::silu_backward", gradient<silu_slope>},
      {"aten::mish", activation<mish>},
      {"aten::mish_backward", gradient<mish_slope>},
      {"aten::leaky_relu", leaky_relu},
      {"aten::leaky_relu_backward", leaky_relu_backward},
      {"aten::elu", elu},
      {"aten::elu_backward", elu_backward},
      {"aten::hardtanh", hardtanh},
      {"aten::hardtanh_backward", hardtanh_backward},
      {"aten::hardsigmoid", activation<hardsigmoid>},
      {"aten::hardsigmoid_backward", gradient<hardsigmoid_slope>},
      {"aten::hardswish", activation<hardswish>},
      {"aten::hardswish_backward", gradient<hardswish_slope>},
      {"aten::softplus", softplus},
      {"aten::softplus_backward", softplus_backward},
      {"aten::softshrink", softshrink},
      {"aten::softshrink_backward", shrink_backward},
      {"aten::hardshrink", hardshrink},
      {"aten::hardshrink_backward", shrink_backward},
      {"aten::log_sigmoid_forward", log_sigmoid},
      {"aten::log_sigmoid_backward", log_sigmoid_backward},
      {"aten::logit", logit},
      {"aten::logit_backward", logit_backward},
      {"aten::_prelu_kernel", prelu},
      {"aten::_prelu_kernel_backward", prelu_backward},
      {"aten::glu", glu},
      {"aten::glu_backward", glu_backward},
  };
}

}  // namespace ivme::xla
