#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// A 0-dimensional tensor counts as one of one element.
struct Along {
  Hlo x;
  Dims dimension;
};
Along along_dimension(const Call& call, int tensor, int dimension) {
  const Hlo& x = call.tensor(tensor);
  Hlo computed = convert(x, compute_type(x.dtype()));
  if (x.rank() == 0) computed = call.emitter.reshape(computed, {1});
  return {computed, {wrap(call.integer(dimension), x.rank())}};
}

Hlo shifted(const Along& along) {
  return along.x - reduce(Reduction::maximum, along.x, along.dimension, true);
}

Dtype forward_type(const Call& call) {  // half_to_float
  return call.boolean(2) ? Dtype::f32 : call.tensor(0).dtype();
}
Result result(const Call& call, const Hlo& x, Dtype dtype) {
  return {call.emitter.reshape(convert(x, dtype), call.tensor(0).dims())};
}

Result softmax(const Call& call) {
  Along along = along_dimension(call, 0, 1);
  Hlo powers = exp(shifted(along));
  return result(call, powers / sum(powers, along.dimension), forward_type(call));
}

Result log_softmax(const Call& call) {
  Along along = along_dimension(call, 0, 1);
  Hlo offset = shifted(along);
  return result(call, offset - log(sum(exp(offset), along.dimension)), forward_type(call));
}

Result softmax_backward(const Call& call) {
  Along gradient = along_dimension(call, 0, 2), output = along_dimension(call, 1, 2);
  Hlo weighted = gradient.x * output.x;
  Hlo input = weighted - output.x * sum(weighted, gradient.dimension);
  return result(call, input, call.dtype(3).value_or(call.tensor(0).dtype()));
}

Result log_softmax_backward(const Call& call) {
  Along gradient = along_dimension(call, 0, 2), output = along_dimension(call, 1, 2);
  Hlo input = gradient.x - exp(output.x) * sum(gradient.x, gradient.dimension);
  return result(call, input, call.dtype(3).value_or(call.tensor(0).dtype()));
}

Result log_sum_exp(const Call& call) {
  const Hlo& x = call.tensor(0);
  Dtype dtype = floating_type(x.dtype());
  Hlo computed = convert(x, compute_type(dtype));
  Dims dimensions = wrap(call.integers(1), x.rank());
  Hlo most = reduce(Reduction::maximum, computed, dimensions, true);
  most = select(call.emitter.is_finite(most), most, 0);
  Hlo total = log(sum(exp(computed - most), dimensions)) + most;
  Dims dims = call.boolean(2) ? total.dims() : without(x.dims(), dimensions);
  return {convert(call.emitter.reshape(total, dims), dtype)};
}

}  // namespace

Rows softmax_rows() {
  return {
      {"aten::_softmax", softmax},
      {"aten::_log_softmax", log_softmax},
      {"aten::_softmax_backward_data", softmax_backward},
      {"aten::_log_softmax_backward_data", log_softmax_backward},
      {"aten::logsumexp", log_sum_exp},
  };
}

}  // namespace ivme::xla
