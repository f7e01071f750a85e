#include <cmath>
#include <numbers>

#include "ivme/error.h"
#include "xla/lower/elementwise.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;
using Function = Hlo (*)(const Hlo&);

// Whole numbers count as f32.
template <Function function>
Result floating(const Call& call) {
  Elementwise e(call, floating_type(call.tensor(0).dtype()));
  return e.result(function(e(0)));
}

// In its own dtype.
template <Function function>
Result same(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  return e.result(function(e(0)));
}

// A rounding: whole numbers stay.
template <Function function>
Result rounding(const Call& call) {
  return is_floating(call.tensor(0).dtype()) ? same<function>(call) : Result{call.tensor(0)};
}

// A question that only floating numbers can answer with yes.
template <Function function>
Result floating_test(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {is_floating(x.dtype()) ? function(x) : call.emitter.constant(0, {Dtype::boolean, x.dims()})};
}

Hlo instruction(const char* name, const Hlo& x) { return x.emitter->unary(name, x); }

Hlo negate(const Hlo& x) {
  if (x.dtype() == Dtype::boolean) {
    throw Error("The negative of booleans was asked for on xla, which is not defined. Use logical_not.");
  }
  return -x;
}
Hlo reciprocal(const Hlo& x) { return 1 / x; }
Hlo sine(const Hlo& x) { return instruction("sine", x); }
Hlo cosine(const Hlo& x) { return instruction("cosine", x); }
Hlo tangent(const Hlo& x) { return sine(x) / cosine(x); }
Hlo arc_tangent(const Hlo& x) { return x.emitter->binary("atan2", x, like(x, 1)); }
Hlo co_leg(const Hlo& x) { return sqrt((1 - x) * (1 + x)); }
Hlo arc_sine(const Hlo& x) { return x.emitter->binary("atan2", x, co_leg(x)); }
Hlo arc_cosine(const Hlo& x) { return x.emitter->binary("atan2", co_leg(x), x); }
Hlo hyperbolic_sine(const Hlo& x) {
  Hlo less = expm1(abs(x)), small = (less + less / (less + 1)) * 0.5;
  Hlo half = exp(abs(x) - std::log(2.0)), value = select(abs(x) > 10.0, half, small);
  return select(x < 0.0, -value, value);
}
Hlo hyperbolic_cosine(const Hlo& x) { return exp(abs(x) - std::log(2.0)) + exp(-abs(x) - std::log(2.0)); }
Hlo log2(const Hlo& x) { return log(x) / std::log(2.0); }
Hlo log10(const Hlo& x) { return log(x) / std::log(10.0); }
Hlo exp2(const Hlo& x) { return power(like(x, 2), x); }
Hlo erfc(const Hlo& x) { return x.emitter->special("erfc", x); }
Hlo erf_inverse(const Hlo& x) { return x.emitter->special("erf_inv", x); }
Hlo log_gamma(const Hlo& x) { return x.emitter->special("lgamma", x); }
Hlo digamma(const Hlo& x) { return select(x == 0.0, -(1 / x), x.emitter->special("digamma", x)); }
Hlo hyperbolic_arc_sine(const Hlo& x) { return x.emitter->special("asinh", x); }
Hlo hyperbolic_arc_cosine(const Hlo& x) { return x.emitter->special("acosh", x); }
Hlo hyperbolic_arc_tangent(const Hlo& x) { return x.emitter->special("atanh", x); }
Hlo sine_over_argument(const Hlo& x) {  // sin(πx)/(πx)
  Hlo angle = x * std::numbers::pi;
  return select(x == 0.0, 1, sine(angle) / angle);
}
Hlo ceil(const Hlo& x) { return instruction("ceil", x); }
Hlo round(const Hlo& x) { return instruction("round_nearest_even", x); }
Hlo trunc(const Hlo& x) { return select(x < 0.0, ceil(x), floor(x)); }
Hlo frac(const Hlo& x) { return x - trunc(x); }
Hlo square(const Hlo& x) { return x * x; }
Hlo sign(const Hlo& x) {
  if (x.dtype() == Dtype::boolean) return x;
  return convert(x > 0.0, x.dtype()) - convert(x < 0.0, x.dtype());
}
Hlo is_infinite(const Hlo& x) { return abs(x) == INFINITY; }
Hlo is_positive_infinite(const Hlo& x) { return x == INFINITY; }
Hlo is_negative_infinite(const Hlo& x) { return x == -INFINITY; }

Result is_finite(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {is_floating(x.dtype()) ? call.emitter.is_finite(x)
                                 : call.emitter.constant(1, {Dtype::boolean, x.dims()})};
}

double greatest(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 1.7976931348623157e308;
    case Dtype::f16:
      return 65504;
    case Dtype::bf16:
      return 0x1.FEp127;
    default:
      return 0x1.FFFFFEp127;
  }
}

Result nan_to_num(const Call& call) {
  const Hlo& x = call.tensor(0);
  if (!is_floating(x.dtype())) return {x};
  double most = greatest(x.dtype());
  Hlo y = select(is_nan(x), call.has(1) ? call.real(1) : 0.0, x);
  y = select(x == INFINITY, call.has(2) ? call.real(2) : most, y);
  return {select(x == -INFINITY, call.has(3) ? call.real(3) : -most, y)};
}

// Of −0 and of not-a-numbers too: a whole number of the same bits is negative.
Result sign_bit(const Call& call) {
  const Hlo& x = call.tensor(0);
  if (x.dtype() == Dtype::boolean || x.dtype() == Dtype::u8)
    return {call.emitter.constant(0, {Dtype::boolean, x.dims()})};
  if (!is_floating(x.dtype())) return {x < 0.0};
  const Dtype bits = size_of(x.dtype()) == 8 ? Dtype::i64 : size_of(x.dtype()) == 4 ? Dtype::i32 : Dtype::i16;
  return {call.emitter.bitcast(x, bits) < 0.0};
}

Result fill(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {call.emitter.broadcast(call.scalar(1, x.dtype()), x.dims())};
}
Result zero(const Call& call) { return {like(call.tensor(0), 0)}; }

}  // namespace

Rows unary_rows() {
  return {
      {"aten::neg", same<negate>},
      {"aten::abs", same<abs>},
      {"aten::sign", same<sign>},
      {"aten::sgn", same<sign>},
      {"aten::square", same<square>},
      {"aten::sqrt", floating<sqrt>},
      {"aten::rsqrt", floating<rsqrt>},
      {"aten::reciprocal", floating<reciprocal>},
      {"aten::exp", floating<exp>},
      {"aten::exp2", floating<exp2>},
      {"aten::expm1", floating<expm1>},
      {"aten::log", floating<log>},
      {"aten::log1p", floating<log1p>},
      {"aten::log2", floating<log2>},
      {"aten::log10", floating<log10>},
      {"aten::sin", floating<sine>},
      {"aten::cos", floating<cosine>},
      {"aten::tan", floating<tangent>},
      {"aten::asin", floating<arc_sine>},
      {"aten::acos", floating<arc_cosine>},
      {"aten::atan", floating<arc_tangent>},
      {"aten::sinh", floating<hyperbolic_sine>},
      {"aten::cosh", floating<hyperbolic_cosine>},
      {"aten::tanh", floating<tanh>},
      {"aten::sigmoid", floating<sigmoid>},
      {"aten::erf", floating<erf>},
      {"aten::erfc", floating<erfc>},
      {"aten::erfinv", floating<erf_inverse>},
      {"aten::lgamma", floating<log_gamma>},
      {"aten::digamma", floating<digamma>},
      {"aten::asinh", floating<hyperbolic_arc_sine>},
      {"aten::acosh", floating<hyperbolic_arc_cosine>},
      {"aten::atanh", floating<hyperbolic_arc_tangent>},
      {"aten::sinc", floating<sine_over_argument>},
      {"aten::signbit", sign_bit},
      {"aten::floor", rounding<floor>},
      {"aten::ceil", rounding<ceil>},
      {"aten::round", rounding<round>},
      {"aten::trunc", rounding<trunc>},
      {"aten::frac", rounding<frac>},
      {"aten::isnan", floating_test<is_nan>},
      {"aten::isinf", floating_test<is_infinite>},
      {"aten::isposinf", floating_test<is_positive_infinite>},
      {"aten::isneginf", floating_test<is_negative_infinite>},
      {"aten::isfinite", is_finite},
      {"aten::nan_to_num", nan_to_num},
      {"aten::fill.Scalar", fill, varying<1>},
      {"aten::fill.Tensor", fill},
      {"aten::zero", zero},
  };
}

}  // namespace ivme::xla
