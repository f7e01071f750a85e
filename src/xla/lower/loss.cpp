#include "xla/lower/elementwise.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// at::Reduction
constexpr int64_t none_reduction = 0, mean_reduction = 1;

Hlo reduced(const Hlo& loss, int64_t reduction) {
  if (reduction == none_reduction) return loss;
  Dims all = range(0, loss.rank());
  return reduction == mean_reduction ? mean(loss, all, false) : sum(loss, all, false);
}

// The gradient that reaches each element of the loss.
Hlo spread(const Hlo& gradient, const Hlo& loss, int64_t reduction) {
  return reduction == mean_reduction ? gradient / static_cast<double>(loss.shape.count()) : gradient;
}

// --- classes
// -------------------------------------------------------------------------------------------------

// Which element of the scores each target picks, and with what weight (0 where it is ignored).
struct Choice {
  int64_t dimension;  // of the classes
  Hlo picked;         // boolean, of the scores' dims
  Hlo weight;         // of the scores' dims with 1 class
};

Choice choose(const Call& call, int scores_at, int ignored_at) {
  const Hlo &scores = call.tensor(scores_at), &target = call.tensor(scores_at + 1);
  int64_t dimension = scores.rank() == 1 ? 0 : 1;
  Dims dims = scores.dims();
  dims[static_cast<size_t>(dimension)] = 1;
  Hlo wanted = call.emitter.reshape(target, dims);
  Hlo classes = call.emitter.iota({Dtype::i32, scores.dims()}, static_cast<int>(dimension));
  Hlo counted = convert(wanted, Dtype::i64) != static_cast<double>(call.integer(ignored_at));
  Hlo picked = (classes == convert(wanted, Dtype::i32)) & counted;
  Dtype compute = compute_type(scores.dtype());
  Hlo weight = convert(counted, compute);
  if (call.has(scores_at + 2)) {
    Hlo of_class = along(convert(call.tensor(scores_at + 2), compute), dimension, scores.rank());
    weight = sum(select(picked, of_class, 0), {dimension});
  }
  return {dimension, picked, weight};
}

Result nll_forward(const Call& call) {
  const Hlo& scores = call.tensor(0);
  Dtype dtype = scores.dtype();
  Choice choice = choose(call, 0, 4);
  Hlo score = sum(select(choice.picked, convert(scores, compute_type(dtype)), 0), {choice.dimension});
  Hlo loss = -(score * choice.weight);
  int64_t reduction = call.integer(3);
  if (reduction == none_reduction) {
    return {convert(call.emitter.reshape(loss, call.tensor(1).dims()), dtype),
            call.emitter.constant(0, {dtype, {}})};
  }
  Hlo total = sum(loss, range(0, loss.rank()), false);
  Hlo weight = sum(choice.weight, range(0, loss.rank()), false);
  return {convert(reduction == mean_reduction ? total / weight : total, dtype), convert(weight, dtype)};
}

Result nll_backward(const Call& call) {
  const Hlo& scores = call.tensor(1);
  Choice choice = choose(call, 1, 5);
  Dtype compute = compute_type(scores.dtype());
  Hlo gradient = convert(call.tensor(0), compute);
  if (call.integer(4) == none_reduction) {
    gradient = call.emitter.reshape(gradient, choice.weight.dims());
  } else if (call.integer(4) == mean_reduction) {
    gradient = gradient / convert(call.tensor(6), compute);
  }
  return {convert(select(choice.picked, -(gradient * choice.weight), 0), scores.dtype())};
}

// --- differences
// ---------------------------------------------------------------------------------------------

Hlo squared(const Hlo& difference, double) { return difference * difference; }
Hlo squared_slope(const Hlo& difference, double) { return difference * 2; }

Hlo smooth(const Hlo& difference, double beta) {
  Hlo size = abs(difference);
  if (beta == 0) return size;
  return select(size < beta, difference * difference * 0.5 / beta, size - 0.5 * beta);
}
Hlo smooth_slope(const Hlo& difference, double beta) {
  Hlo outside = select(difference < 0.0, like(difference, -1), 1);
  if (beta == 0) return select(difference == 0.0, like(difference, 0), outside);
  return select(abs(difference) < beta, difference / beta, outside);
}

Hlo huber(const Hlo& difference, double delta) {
  Hlo size = abs(difference);
  return select(size <= delta, difference * difference * 0.5, (size - 0.5 * delta) * delta);
}
Hlo huber_slope(const Hlo& difference, double delta) { return maximum(minimum(difference, delta), -delta); }

using Formula = Hlo (*)(const Hlo& difference, double parameter);

template <Formula formula>
Result difference_loss(const Call& call) {
  Elementwise e(call, {0, 1});
  double parameter = call.count() > 3 ? call.real(3) : 0;
  return e.result(reduced(formula(e(0) - e(1), parameter), call.integer(2)));
}

template <Formula slope>
Result difference_gradient(const Call& call) {
  Elementwise e(call, {0, 1, 2});
  double parameter = call.count() > 4 ? call.real(4) : 0;
  Hlo difference = e(1) - e(2);
  return e.result(slope(difference, parameter) * spread(e(0), difference, call.integer(3)));
}

// --- binary cross-entropy
// ------------------------------------------------------------------------------------

Result binary_cross_entropy(const Call& call) {
  Elementwise e(call, call.tensor(0).dtype());
  Hlo x = e(0), target = e(1);
  Hlo loss = (target - 1) * maximum(log1p(-x), -100) - target * maximum(log(x), -100);
  if (call.has(2)) loss = loss * e(2);
  return e.result(reduced(loss, call.integer(3)));
}

Result binary_cross_entropy_backward(const Call& call) {
  Elementwise e(call, call.tensor(1).dtype());
  Hlo x = e(1), target = e(2);
  Hlo slope = spread(e(0), x, call.integer(4)) * (x - target) / maximum((1 - x) * x, 1e-12);
  if (call.has(3)) slope = slope * e(3);
  return e.result(slope);
}

Result binary_cross_entropy_with_logits(const Call& call) {
  Elementwise e(call, {0, 1});
  Hlo x = e(0), target = e(1);
  Hlo log_sigmoid = minimum(x, 0) - log1p(exp(-abs(x)));
  Hlo loss = call.has(3) ? (1 - target) * x - ((e(3) - 1) * target + 1) * log_sigmoid
                         : (1 - target) * x - log_sigmoid;
  if (call.has(2)) loss = loss * e(2);
  return e.result(reduced(loss, call.integer(4)));
}

}  // namespace

Rows loss_rows() {
  return {
      {"aten::nll_loss_forward", nll_forward},
      {"aten::nll_loss_backward", nll_backward},
      {"aten::nll_loss2d_forward", nll_forward},
      {"aten::nll_loss2d_backward", nll_backward},
      {"aten::mse_loss", difference_loss<squared>},
      {"aten::mse_loss_backward", difference_gradient<squared_slope>},
      {"aten::smooth_l1_loss", difference_loss<smooth>},
      {"aten::smooth_l1_loss_backward", difference_gradient<smooth_slope>},
      {"aten::huber_loss", difference_loss<huber>},
      {"aten::huber_loss_backward", difference_gradient<huber_slope>},
      {"aten::binary_cross_entropy", binary_cross_entropy},
      {"aten::binary_cross_entropy_backward", binary_cross_entropy_backward},
      {"aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
  };
}

}  // namespace ivme::xla
