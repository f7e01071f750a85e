#include "ivme/error.h"
#include "xla/lower/elementwise.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

template <Hlo (*relation)(const Hlo&, const Hlo&)>
Result compare(const Call& call) {
  Elementwise e(call, {0, 1});
  return {relation(e(0), e(1))};
}

void refuse_floating(Dtype dtype) {
  if (!is_floating(dtype)) return;
  throw Error("An operation on the bits of " + std::string(name_of(dtype)) +
              " was asked for on xla, which has them for "
              "whole numbers and booleans only. Compare first, or use logical_and, logical_or, logical_not.");
}

template <Hlo (*combine)(const Hlo&, const Hlo&)>
Result bitwise(const Call& call) {
  Elementwise e(call, {0, 1});
  refuse_floating(e.compute());
  return e.result(combine(e(0), e(1)));
}

template <Hlo (*combine)(const Hlo&, const Hlo&)>
Result logical(const Call& call) {
  return {combine(truth(call.tensor(0)), truth(call.tensor(1)))};
}

// Of whole numbers; by as many bits as there are, or more, leaves 0, or −1 of a negative number on the right.
template <bool left>
Result shift(const Call& call) {
  Elementwise e(call, {0, 1});
  refuse_floating(e.compute());
  Hlo x = e(0), by = e(1);
  Dims dims = broadcast_dims(x.dims(), by.dims());
  const char* instruction = left                       ? "shift_left"
                            : e.compute() == Dtype::u8 ? "shift_right_logical"
                                                       : "shift_right_arithmetic";
  return e.result(
      call.emitter.binary(instruction, call.emitter.broadcast(x, dims), call.emitter.broadcast(by, dims)));
}

Result logical_not(const Call& call) { return {~truth(call.tensor(0))}; }
Result bitwise_not(const Call& call) {
  refuse_floating(call.tensor(0).dtype());
  return {~call.tensor(0)};
}

Result where(const Call& call) {
  Elementwise e(call, {1, 2});
  return e.result(select(truth(call.tensor(0)), e(1), e(2)));
}

Result masked_fill(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {select(call.tensor(1), call.scalar(2, x.dtype()), x)};
}

// A not-a-number bound or value gives not-a-number; the upper bound wins.
Result clamp_between(const Call& call, int low, int high) {
  ResultType type;
  type.add_argument(call, 0);
  if (low >= 0) type.add_argument(call, low);
  if (high >= 0) type.add_argument(call, high);
  Elementwise e(call, type.dtype());
  Hlo x = e(0);
  if (low >= 0 && call.has(low)) x = maximum(x, e(low));
  if (high >= 0 && call.has(high)) x = minimum(x, e(high));
  return e.result(x);
}
Result clamp(const Call& call) { return clamp_between(call, 1, 2); }
Result clamp_below(const Call& call) { return clamp_between(call, 1, -1); }
Result clamp_above(const Call& call) { return clamp_between(call, -1, 1); }

}  // namespace

Rows comparison_rows() {
  return {
      {"aten::eq.Tensor", compare<(operator==)>},
      {"aten::eq.Scalar", compare<(operator==)>, varying<1>},
      {"aten::ne.Tensor", compare<(operator!=)>},
      {"aten::ne.Scalar", compare<(operator!=)>, varying<1>},
      {"aten::lt.Tensor", compare<(operator<)>},
      {"aten::lt.Scalar", compare<(operator<)>, varying<1>},
      {"aten::le.Tensor", compare<(operator<=)>},
      {"aten::le.Scalar", compare<(operator<=)>, varying<1>},
      {"aten::gt.Tensor", compare<(operator>)>},
      {"aten::gt.Scalar", compare<(operator>)>, varying<1>},
      {"aten::ge.Tensor", compare<(operator>=)>},
      {"aten::ge.Scalar", compare<(operator>=)>, varying<1>},
      {"aten::bitwise_and.Tensor", bitwise<(operator&)>},
      {"aten::bitwise_and.Scalar", bitwise<(operator&)>, varying<1>},
      {"aten::bitwise_or.Tensor", bitwise<(operator|)>},
      {"aten::bitwise_or.Scalar", bitwise<(operator|)>, varying<1>},
      {"aten::bitwise_xor.Tensor", bitwise<(operator^)>},
      {"aten::bitwise_xor.Scalar", bitwise<(operator^)>, varying<1>},
      {"aten::bitwise_left_shift.Tensor", shift<true>},
      {"aten::bitwise_right_shift.Tensor", shift<false>},
      {"aten::__lshift__.Scalar", shift<true>, varying<1>},
      {"aten::__rshift__.Scalar", shift<false>, varying<1>},
      {"aten::bitwise_not", bitwise_not},
      {"aten::logical_and", logical<(operator&)>},
      {"aten::logical_or", logical<(operator|)>},
      {"aten::logical_xor", logical<(operator^)>},
      {"aten::logical_not", logical_not},
      {"aten::where.self", where},
      {"aten::where.ScalarSelf", where, varying<1>},
      {"aten::where.ScalarOther", where, varying<2>},
      {"aten::where.Scalar", where, varying<1, 2>},
      {"aten::masked_fill.Scalar", masked_fill, varying<2>},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::clamp", clamp},
      {"aten::clamp.Tensor", clamp},
      {"aten::clamp_min", clamp_below},
      {"aten::clamp_min.Tensor", clamp_below},
      {"aten::clamp_max", clamp_above},
      {"aten::clamp_max.Tensor", clamp_above},
  };
}

}  // namespace ivme::xla
