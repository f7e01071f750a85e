#include <cmath>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// The dimensions named by an argument: none, one or several; all when there are none.
Dims dimensions_of(const Call& call, int argument) {
  int rank = call.tensor(0).rank();
  const Argument& asked = call.argument(argument);
  if (asked.kind == Argument::Kind::integer) return wrap(Dims{asked.integer}, rank);
  return wrap(call.integers(argument), rank);
}

// Half precisions are reduced in f32.
template <class Formula>
Hlo in(Dtype result, const Hlo& x, const Formula& formula) {
  return convert(formula(convert(x, compute_type(result))), result);
}

Result sum_over(const Call& call, const Dims& dimensions, bool keep, int dtype) {
  const Hlo& x = call.tensor(0);
  Dtype result = call.dtype(dtype).value_or(sum_type(x.dtype()));
  return {in(result, x, [&](const Hlo& y) { return sum(y, dimensions, keep); })};
}
Result sum_all(const Call& call) { return sum_over(call, range(0, call.tensor(0).rank()), false, 1); }
Result sum_dims(const Call& call) { return sum_over(call, dimensions_of(call, 1), call.boolean(2), 3); }

Result mean_over(const Call& call, const Dims& dimensions, bool keep, int dtype) {
  const Hlo& x = call.tensor(0);
  Dtype result = call.dtype(dtype).value_or(x.dtype());
  if (!is_floating(result)) {
    throw Error("The mean of a tensor of " + std::string(name_of(result)) +
                " was asked for on xla. A mean is a floating number. Convert the tensor first, or give mean "
                "a dtype.");
  }
  return {in(result, x, [&](const Hlo& y) { return mean(y, dimensions, keep); })};
}
Result mean_all(const Call& call) { return mean_over(call, range(0, call.tensor(0).rank()), false, 1); }
Result mean_dims(const Call& call) { return mean_over(call, dimensions_of(call, 1), call.boolean(2), 3); }

Result product_over(const Call& call, const Dims& dimensions, bool keep, int dtype) {
  const Hlo& x = call.tensor(0);
  Dtype result = call.dtype(dtype).value_or(sum_type(x.dtype()));
  return {in(result, x, [&](const Hlo& y) { return reduce(Reduction::multiply, y, dimensions, keep); })};
}
Result product_all(const Call& call) { return product_over(call, range(0, call.tensor(0).rank()), false, 1); }
Result product_dim(const Call& call) {
  return product_over(call, dimensions_of(call, 1), call.boolean(2), 3);
}

// XLA's own reduction loses a not-a-number, or not, depending on where it stands.
Hlo extreme_of(Reduction reduction, const Hlo& x, const Dims& dimensions, bool keep) {
  if (count(x, dimensions) == 0) {
    throw Error(
        "The greatest or least element of " + to_string(x.shape) +
        " was asked for on xla, along a dimension without elements. Give it a dimension that has some.");
  }
  Hlo extreme = reduce(reduction, x, dimensions, keep);
  if (!is_floating(x.dtype())) return extreme;
  return select(reduce(Reduction::logical_or, is_nan(x), dimensions, keep), NAN, extreme);
}

template <Reduction reduction>
Result extreme_all(const Call& call) {
  const Hlo& x = call.tensor(0);
  return {extreme_of(reduction, x, range(0, x.rank()), false)};
}
template <Reduction reduction>
Result extreme_dims(const Call& call) {
  return {extreme_of(reduction, call.tensor(0), dimensions_of(call, 1), call.boolean(2))};
}
Result both_extremes(const Call& call) {
  Dims dimensions = dimensions_of(call, 1);
  return {extreme_of(Reduction::minimum, call.tensor(0), dimensions, call.boolean(2)),
          extreme_of(Reduction::maximum, call.tensor(0), dimensions, call.boolean(2))};
}

// Where the extreme stands first along a dimension; a not-a-number counts as the extreme.
Hlo position_of(const Hlo& x, const Hlo& extreme, int64_t dimension, bool keep) {
  int64_t size = x.dim(static_cast<int>(dimension));
  Hlo positions = x.emitter->iota({index_type(size), x.dims()}, static_cast<int>(dimension));
  Hlo there = x == extreme;
  if (is_floating(x.dtype())) there = there | is_nan(x);
  Hlo first =
      reduce(Reduction::minimum, select(there, positions, static_cast<double>(size)), {dimension}, keep);
  return convert(first, Dtype::i64);
}

template <Reduction reduction>
Result extreme_with_position(const Call& call) {
  const Hlo& x = call.tensor(0);
  bool keep = call.boolean(2);
  if (x.rank() == 0) return {x, call.emitter.constant(0, {Dtype::i64, {}})};
  int64_t dimension = wrap(call.integer(1), x.rank());
  Hlo extreme = extreme_of(reduction, x, {dimension}, true);
  Dims dims = keep ? extreme.dims() : without(x.dims(), {dimension});
  return {call.emitter.reshape(extreme, dims), position_of(x, extreme, dimension, keep)};
}

template <Reduction reduction>
Result position(const Call& call) {
  Hlo x = call.tensor(0);
  bool whole = !call.has(1);
  if (x.rank() == 0) return {call.emitter.constant(0, {Dtype::i64, {}})};
  Dims kept(x.dims().size(), 1);
  if (whole) x = call.emitter.reshape(x, {x.shape.count()});
  int64_t dimension = whole ? 0 : wrap(call.integer(1), x.rank());
  Hlo result = position_of(x, extreme_of(reduction, x, {dimension}, true), dimension, call.boolean(2));
  return {whole && call.boolean(2) ? call.emitter.reshape(result, kept) : result};
}

template <Reduction reduction>
Hlo truth_over(const Hlo& x, const Dims& dimensions, bool keep) {
  Hlo result = reduce(reduction, truth(x), dimensions, keep);
  return x.dtype() == Dtype::u8 ? convert(result, Dtype::u8) : result;
}
template <Reduction reduction>
Result truth_all(const Call& call) {
  return {truth_over<reduction>(call.tensor(0), range(0, call.tensor(0).rank()), false)};
}
// Unlike everywhere else, an empty list of dimensions is none, and only None is all.
template <Reduction reduction>
Result truth_dims(const Call& call) {
  if (call.argument(1).kind == Argument::Kind::integers && call.integers(1).empty())
    return {truth(call.tensor(0))};
  return {truth_over<reduction>(call.tensor(0), dimensions_of(call, 1), call.boolean(2))};
}

struct Moments {
  Hlo mean, variance;
};
// In two passes. The divisor is the count less the correction, 0 at least.
Moments moments(const Hlo& x, const Dims& dimensions, double correction, bool keep) {
  Hlo center = mean(x, dimensions), offset = x - center;
  double divisor = std::max(static_cast<double>(count(x, dimensions)) - correction, 0.0);
  Dims dims = keep ? center.dims() : without(x.dims(), dimensions);
  return {x.emitter->reshape(center, dims), sum(offset * offset, dimensions, keep) / divisor};
}

template <bool deviation, bool with_mean>
Result spread(const Call& call) {
  const Hlo& x = call.tensor(0);
  double correction = call.has(2) ? call.real(2) : 1;
  Moments both =
      moments(convert(x, compute_type(x.dtype())), dimensions_of(call, 1), correction, call.boolean(3));
  Hlo result = convert(deviation ? sqrt(both.variance) : both.variance, x.dtype());
  if (with_mean) return {result, convert(both.mean, x.dtype())};
  return {result};
}

Hlo norm(const Hlo& x, double p, const Dims& dimensions, bool keep) {
  if (p == 2) return sqrt(sum(x * x, dimensions, keep));
  if (p == 1) return sum(abs(x), dimensions, keep);
  if (p == 0) return sum(convert(x != 0.0, x.dtype()), dimensions, keep);
  if (p == INFINITY) return reduce(Reduction::maximum, abs(x), dimensions, keep);
  if (p == -INFINITY) return reduce(Reduction::minimum, abs(x), dimensions, keep);
  Hlo total = sum(power(abs(x), like(x, p)), dimensions, keep);
  return power(total, like(total, 1 / p));
}

Result norm_over(const Call& call, const Dims& dimensions, bool keep, std::optional<Dtype> dtype) {
  const Hlo& x = call.tensor(0);
  double p = call.has(1) ? call.real(1) : 2;
  return {in(dtype.value_or(x.dtype()), x, [&](const Hlo& y) { return norm(y, p, dimensions, keep); })};
}
Result norm_all(const Call& call) {
  return norm_over(call, range(0, call.tensor(0).rank()), false, std::nullopt);
}
Result norm_dims(const Call& call) {
  return norm_over(call, dimensions_of(call, 2), call.boolean(3), std::nullopt);
}
Result norm_dtype(const Call& call) {
  return norm_over(call, range(0, call.tensor(0).rank()), false, call.dtype(2));
}
Result norm_dims_dtype(const Call& call) {
  return norm_over(call, dimensions_of(call, 2), call.boolean(3), call.dtype(4));
}

}  // namespace

Rows reduction_rows() {
  constexpr Reduction most = Reduction::maximum, least = Reduction::minimum;
  constexpr Reduction both = Reduction::logical_and, either = Reduction::logical_or;
  return {
      {"aten::sum", sum_all},
      {"aten::sum.dim_IntList", sum_dims},
      {"aten::mean", mean_all},
      {"aten::mean.dim", mean_dims},
      {"aten::prod", product_all},
      {"aten::prod.dim_int", product_dim},
      {"aten::max", extreme_all<most>},
      {"aten::min", extreme_all<least>},
      {"aten::amax", extreme_dims<most>},
      {"aten::amin", extreme_dims<least>},
      {"aten::aminmax", both_extremes},
      {"aten::max.dim", extreme_with_position<most>},
      {"aten::min.dim", extreme_with_position<least>},
      {"aten::argmax", position<most>},
      {"aten::argmin", position<least>},
      {"aten::all", truth_all<both>},
      {"aten::all.dim", truth_dims<both>},
      {"aten::all.dims", truth_dims<both>},
      {"aten::any", truth_all<either>},
      {"aten::any.dim", truth_dims<either>},
      {"aten::any.dims", truth_dims<either>},
      {"aten::var.correction", spread<false, false>},
      {"aten::std.correction", spread<true, false>},
      {"aten::var_mean.correction", spread<false, true>},
      {"aten::std_mean.correction", spread<true, true>},
      {"aten::norm.Scalar", norm_all},
      {"aten::norm.ScalarOpt_dim", norm_dims},
      {"aten::norm.ScalarOpt_dtype", norm_dtype},
      {"aten::norm.ScalarOpt_dim_dtype", norm_dims_dtype},
      {"aten::linalg_vector_norm", norm_dims_dtype},
  };
}

}  // namespace ivme::xla
