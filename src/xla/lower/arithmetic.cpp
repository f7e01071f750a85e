#include <cmath>

#include "ivme/error.h"
#include "xla/lower/elementwise.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

Hlo scaled(const Elementwise& e, const Call& call, const Hlo& x, int factor) {
  return call.is_constant(factor, 1) ? x : x * e(factor);
}

void refuse_booleans(Dtype dtype) {
  if (dtype != Dtype::boolean) return;
  throw Error(
      "The difference of booleans was asked for on xla, which is not defined. Use logical_xor, or convert "
      "them "
      "to numbers.");
}

Result add(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(e(0) + scaled(e, call, e(1), 2));
}
Result subtract(const Call& call) {
  Elementwise e(call, {0, 1});
  refuse_booleans(e.compute());
  return e.result(e(0) - scaled(e, call, e(1), 2));
}
Result subtract_from(const Call& call) {
  Elementwise e(call, {0, 1});
  refuse_booleans(e.compute());
  return e.result(e(1) - scaled(e, call, e(0), 2));
}
Result multiply(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(e(0) * e(1));
}
Result divide(const Call& call) {
  Elementwise e(call, floating_type(result_type(call, {0, 1})));
  return e.result(e(0) / e(1));
}

Hlo remainder_of(const Hlo& a, const Hlo& b) {
  Dims dims = broadcast_dims(a.dims(), b.dims());
  return a.emitter->binary("remainder", a.emitter->broadcast(a, dims), a.emitter->broadcast(b, dims));
}

Hlo truncated(const Hlo& x) {
  return is_floating(x.dtype()) ? select(x < 0.0, x.emitter->unary("ceil", x), floor(x)) : x;
}

// a/b rounded down, from the exact remainder, as PyTorch (c10::div_floor_floating).
Hlo floor_quotient(const Hlo& a, const Hlo& b) {
  Hlo remainder = remainder_of(a, b);
  Hlo other_sign = (remainder != 0.0) & ((b < 0.0) != (remainder < 0.0));
  if (!is_floating(a.dtype())) return a / b - convert(other_sign, a.dtype());
  Hlo quotient = (a - remainder) / b;
  quotient = select(other_sign, quotient - 1, quotient);
  Hlo rounded = floor(quotient);
  rounded = select(quotient - rounded > 0.5, rounded + 1, rounded);
  Hlo result = select(quotient == 0.0, like(quotient, 0) * (a / b), rounded);
  return select(b == 0.0, a / b, result);
}

Result divide_rounded(const Call& call) {
  if (!call.has(2)) return divide(call);
  Elementwise e(call, {0, 1});
  bool down = call.text(2) == "floor";
  return e.result(down ? floor_quotient(e(0), e(1)) : truncated(e(0) / e(1)));
}
Result floor_divide(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(floor_quotient(e(0), e(1)));
}
Result fmod(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(remainder_of(e(0), e(1)));
}
// With the sign of the divisor.
Result remainder(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo a = e(0), b = e(1), r = remainder_of(a, b);
  return e.result(select((r != 0.0) & ((b < 0.0) != (r < 0.0)), r + b, r));
}

Hlo to_constant_power(const Hlo& x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 0) return like(x, 1);
  if (is_floating(x.dtype())) {
    if (exponent == 0.5) return sqrt(x);
    if (exponent == -0.5) return rsqrt(x);
    if (exponent == -1) return 1 / x;
    if (exponent == -2) return 1 / (x * x);
  }
  return power(x, like(x, exponent));
}

Result power_of_scalar(const Call& call) {
  Elementwise e(call, {0, 1});
  if (call.argument(1).kind == Argument::Kind::operand) return e.result(power(e(0), e(1)));
  return e.result(to_constant_power(e(0), call.real(1)));
}
Result power_of_tensor(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(power(e(0), e(1)));
}

template <Hlo (*combine)(const Hlo&, const Hlo&)>
Result pairwise(const Call& call) {
  Elementwise e(call, {0, 1});
  return e.result(combine(e(0), e(1)));
}

// From the nearer end, as PyTorch: exact at weight 0 and 1.
Result lerp(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo start = e(0), end = e(1), weight = e(2), difference = end - start;
  return e.result(select(abs(weight) < 0.5, start + weight * difference, end - difference * (1 - weight)));
}

Result addcmul(const Call& call) {
  Elementwise e(call, {0, 1, 2});
  return e.result(e(0) + scaled(e, call, e(1), 3) * e(2));
}
Result addcdiv(const Call& call) {
  Elementwise e(call, {0, 1, 2});
  return e.result(e(0) + scaled(e, call, e(1), 3) / e(2));
}

Hlo arc_tangent(const Hlo& a, const Hlo& b) {
  Dims dims = broadcast_dims(a.dims(), b.dims());
  return a.emitter->binary("atan2", a.emitter->broadcast(a, dims), a.emitter->broadcast(b, dims));
}
Result atan2(const Call& call) {
  Elementwise e(call, floating_type(result_type(call, {0, 1})));
  return e.result(arc_tangent(e(0), e(1)));
}
Result hypotenuse(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo a = abs(e(0)), b = abs(e(1)), large = maximum(a, b), ratio = minimum(a, b) / large;
  return e.result(select(large == 0.0, large, large * sqrt(ratio * ratio + 1)));
}
Result log_add_exp(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo a = e(0), b = e(1), greater = maximum(a, b);
  return e.result(select(a == b, greater + std::log(2.0), greater + log1p(exp(-abs(a - b)))));
}

// The one that is a number, where only one is.
template <Hlo (*combine)(const Hlo&, const Hlo&)>
Result of_numbers(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo a = e(0), b = e(1);
  if (!is_floating(e.compute())) return e.result(combine(a, b));
  return e.result(select(is_nan(a), b, select(is_nan(b), a, combine(a, b))));
}

Result log_add_exp2(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo a = e(0), b = e(1), greater = maximum(a, b);
  Hlo rest = log1p(exp(-abs(a - b) * std::log(2.0))) / std::log(2.0);
  return e.result(select(a == b, greater + 1, greater + rest));
}

Result copy_sign(const Call& call) {
  Elementwise e(call, floating_type(result_type(call, {0, 1})));
  Hlo size = abs(e(0)), sign = e(1);
  Hlo negative = (sign < 0.0) | ((sign == 0.0) & (1 / sign < 0.0));
  return e.result(select(negative, -size, size));
}

Result heaviside(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo x = e(0);
  return e.result(select(x == 0.0, e(1), convert(x > 0.0, e.compute())));
}

// 0 where x is 0, even beside an infinite logarithm.
Result x_log_y(const Call& call) {
  Elementwise e(call, floating_type(result_type(call, {0, 1})));
  Hlo x = e(0), y = e(1);
  return e.result(select(is_nan(y), y, select(x == 0.0, 0.0, x * log(y))));
}

}  // namespace

Rows arithmetic_rows() {
  return {
      {"aten::add.Tensor", add, varying<2>},
      {"aten::add.Scalar", add, varying<1, 2>},
      {"aten::sub.Tensor", subtract, varying<2>},
      {"aten::sub.Scalar", subtract, varying<1, 2>},
      {"aten::rsub.Tensor", subtract_from, varying<2>},
      {"aten::rsub.Scalar", subtract_from, varying<1, 2>},
      {"aten::mul.Tensor", multiply},
      {"aten::mul.Scalar", multiply, varying<1>},
      {"aten::div.Tensor", divide},
      {"aten::div.Scalar", divide, varying<1>},
      {"aten::div.Tensor_mode", divide_rounded},
      {"aten::div.Scalar_mode", divide_rounded, varying<1>},
      {"aten::floor_divide", floor_divide},
      {"aten::floor_divide.Scalar", floor_divide, varying<1>},
      {"aten::fmod.Tensor", fmod},
      {"aten::fmod.Scalar", fmod, varying<1>},
      {"aten::remainder.Tensor", remainder},
      {"aten::remainder.Scalar", remainder, varying<1>},
      {"aten::remainder.Scalar_Tensor", remainder, varying<0>},
      {"aten::pow.Tensor_Scalar", power_of_scalar},
      {"aten::pow.Tensor_Tensor", power_of_tensor},
      {"aten::pow.Scalar", power_of_tensor, varying<0>},
      {"aten::maximum", pairwise<maximum>},
      {"aten::minimum", pairwise<minimum>},
      {"aten::max.other", pairwise<maximum>},
      {"aten::min.other", pairwise<minimum>},
      {"aten::lerp.Scalar", lerp, varying<2>},
      {"aten::lerp.Tensor", lerp},
      {"aten::addcmul", addcmul, varying<3>},
      {"aten::addcdiv", addcdiv, varying<3>},
      {"aten::atan2", atan2},
      {"aten::hypot", hypotenuse},
      {"aten::logaddexp", log_add_exp},
      {"aten::logaddexp2", log_add_exp2},
      {"aten::fmax", of_numbers<maximum>},
      {"aten::fmin", of_numbers<minimum>},
      {"aten::copysign.Tensor", copy_sign},
      {"aten::heaviside", heaviside},
      {"aten::xlogy.Tensor", x_log_y},
  };
}

}  // namespace ivme::xla
