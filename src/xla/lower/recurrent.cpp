// One layer of an LSTM, a GRU or an RNN in one direction, as a loop over the T positions of a sequence. What
// need not wait for the position before is outside the loop: the caller multiplies the whole input with its
// weights (the projection), and the gradients of the weights are products over all positions at once.
//
// Forward   0 projection [T, B, G]: x·W_ihᵀ and all biases that can be added before the loop
//           1 h₀ [B, P]  2 c₀ [B, H] (LSTM)  3 W_hh [G, P]  4 b_hh [G] (GRU, or None)
//           5 W_hr [P, H] (LSTM with projections)
//           6 valid [T, B] or None: false where the sequence has no such position: the state stays
//           7 reverse: from the last position to the first  8 keep: what backward needs
//   gives   h of all positions [T, B, P], last h, last c, gates [T, B, ·], incoming c of all positions
// Backward  0–2 gradients of the first three, or None  3 h₀  4 W_hh  5 b_hh  6 W_hr  7 valid
//           8 h of all positions  9 gates  10 incoming c  11 reverse
//   gives   gradients of projection, h₀, c₀, W_hh, b_hh, W_hr
// The formulas are those of torch.nn's documentation. Of half precisions, the state stays f32 in the loop.
#include <optional>

#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

Hlo part(const Hlo& x, int64_t index, int64_t of) {  // one of the gates, which lie side by side
  int64_t size = x.dim(-1) / of;
  return slice_dim(x, x.rank() - 1, index * size, (index + 1) * size);
}
Hlo side_by_side(const std::vector<Hlo>& parts) {
  return parts[0].emitter->concatenate(parts, parts[0].rank() - 1);
}

struct State {
  Hlo h;
  std::optional<Hlo> c;
};

// What one position adds to the gradients.
struct Slopes {
  Hlo input;                // of the projection
  std::optional<Hlo> h, c;  // of the incoming h, but for its way through W_hh; of the incoming c
};

// The kinds of layers, at one position or at all. `hidden` is h·W_hhᵀ + b_hh; the gates are what forward
// keeps; hidden_slope makes the gradient of `hidden` from that of the projection.
struct Lstm {
  static constexpr bool has_c = true, reads_h = false, keeps_gates = true;

  static Hlo gates(const Hlo& input, const Hlo& hidden) {
    Hlo z = input + hidden;
    return side_by_side(
        {sigmoid(part(z, 0, 4)), sigmoid(part(z, 1, 4)), tanh(part(z, 2, 4)), sigmoid(part(z, 3, 4))});
  }
  static Hlo cell(const Hlo& gates, const Hlo& before) {
    return part(gates, 1, 4) * before + part(gates, 0, 4) * part(gates, 2, 4);
  }
  static State forward(const Hlo& gates, const State& before) {
    Hlo c = cell(gates, *before.c);
    return {part(gates, 3, 4) * tanh(c), c};
  }
  static Slopes backward(const Hlo& gates, const State& before, const State& slope) {
    Hlo i = part(gates, 0, 4), f = part(gates, 1, 4), g = part(gates, 2, 4), o = part(gates, 3, 4);
    Hlo squashed = tanh(cell(gates, *before.c));
    Hlo c = *slope.c + slope.h * o * (1 - squashed * squashed);
    Hlo input = side_by_side({c * g * i * (1 - i), c * *before.c * f * (1 - f), c * i * (1 - g * g),
                              slope.h * squashed * o * (1 - o)});
    return {input, {}, c * f};
  }
  static Hlo hidden_slope(const Hlo& input, const Hlo&) { return input; }
};

struct Gru {
  static constexpr bool has_c = false, reads_h = true, keeps_gates = true;

  static Hlo gates(const Hlo& input, const Hlo& hidden) {  // r, z, n, and the hidden part of n
    Hlo r = sigmoid(part(input, 0, 3) + part(hidden, 0, 3));
    Hlo z = sigmoid(part(input, 1, 3) + part(hidden, 1, 3));
    Hlo inner = part(hidden, 2, 3);
    return side_by_side({r, z, tanh(part(input, 2, 3) + r * inner), inner});
  }
  static State forward(const Hlo& gates, const State& before) {
    Hlo n = part(gates, 2, 4);
    return {(before.h - n) * part(gates, 1, 4) + n, {}};
  }
  static Slopes backward(const Hlo& gates, const State& before, const State& slope) {
    Hlo r = part(gates, 0, 4), z = part(gates, 1, 4), n = part(gates, 2, 4), inner = part(gates, 3, 4);
    Hlo of_n = slope.h * (1 - z) * (1 - n * n);
    Hlo of_r = of_n * inner * r * (1 - r), of_z = slope.h * (before.h - n) * z * (1 - z);
    return {side_by_side({of_r, of_z, of_n}), slope.h * z, {}};
  }
  static Hlo hidden_slope(const Hlo& input, const Hlo& gates) {
    return side_by_side({part(input, 0, 3), part(input, 1, 3), part(input, 2, 3) * part(gates, 0, 4)});
  }
};

Hlo relu(const Hlo& x) { return maximum(x, 0); }
Hlo tanh_slope(const Hlo& y) { return 1 - y * y; }
Hlo relu_slope(const Hlo& y) { return convert(y > 0.0, y.dtype()); }

// Backward needs h alone, which it gets as the gates.
template <Hlo (*function)(const Hlo&), Hlo (*slope_at)(const Hlo& result)>
struct Rnn {
  static constexpr bool has_c = false, reads_h = false, keeps_gates = false;

  static Hlo gates(const Hlo& input, const Hlo& hidden) { return function(input + hidden); }
  static State forward(const Hlo& gates, const State&) { return {gates, {}}; }
  static Slopes backward(const Hlo& gates, const State&, const State& slope) {
    return {slope.h * slope_at(gates), {}, {}};
  }
  static Hlo hidden_slope(const Hlo& input, const Hlo&) { return input; }
};

// The position that a pass of the loop is at, in arrays [T, …].
class Position {
 public:
  Position(const Hlo& pass, int64_t count, bool last_first)
      : emitter_(*pass.emitter),
        index_(last_first ? like(pass, static_cast<double>(count - 1)) - pass : pass) {}

  Hlo of(const Hlo& all) const {
    Dims sizes = all.dims();
    sizes[0] = 1;
    Hlo one = emitter_.dynamic_slice(all, starts(all), sizes);
    sizes.erase(sizes.begin());
    return emitter_.reshape(one, sizes);
  }
  Hlo put(const Hlo& all, const Hlo& one) const {
    return emitter_.dynamic_update_slice(all, unsqueeze(convert(one, all.dtype()), 0), starts(all));
  }

 private:
  std::vector<Hlo> starts(const Hlo& all) const {
    std::vector<Hlo> all_starts(all.dims().size(), like(index_, 0));
    all_starts[0] = index_;
    return all_starts;
  }

  Emitter& emitter_;
  Hlo index_;
};

// x·W or x·Wᵀ, of matrices; sums are kept in the dtype of computation.
Hlo times(const Hlo& x, const Hlo& weight, bool transposed) {
  Dims contracted{transposed ? 1 : 0};
  return x.emitter->dot(convert(x, weight.dtype()), weight, {{}, {}, {1}, contracted},
                        compute_type(weight.dtype()));
}
// Σ aᵀ·b over all positions and sequences: the gradient of a weight.
Hlo total(const Hlo& a, const Hlo& b, const Hlo& weight) {
  auto rows = [&](const Hlo& x) {
    return x.emitter->reshape(convert(x, weight.dtype()), {x.dim(0) * x.dim(1), x.dim(2)});
  };
  Hlo sum = a.emitter->dot(rows(a), rows(b), {{}, {}, {0}, {0}}, compute_type(weight.dtype()));
  return convert(sum, weight.dtype());
}

Hlo zeros(Emitter& emitter, Dtype dtype, const Dims& dims) { return emitter.constant(0, {dtype, dims}); }
Hlo nothing(const Call& call) { return zeros(call.emitter, Dtype::f32, {0}); }

std::optional<Hlo> optional(const Call& call, int argument) {
  return call.has(argument) ? std::optional(call.tensor(argument)) : std::nullopt;
}

State chosen(const std::optional<Hlo>& valid, const State& a, const State& b) {
  if (!valid) return a;
  State result{select(*valid, a.h, b.h), {}};
  if (a.c) result.c = select(*valid, *a.c, *b.c);
  return result;
}

template <class Layer>
Result forward(const Call& call) {
  Emitter& emitter = call.emitter;
  const Hlo &projection = call.tensor(0), &weight = call.tensor(3);
  const std::optional<Hlo> bias = optional(call, 4), shrink = optional(call, 5), valid = optional(call, 6);
  const bool reverse = call.boolean(7), keep = call.boolean(8) && (Layer::keeps_gates || Layer::has_c);
  const Dtype dtype = projection.dtype(), compute = compute_type(dtype);
  const int64_t positions = projection.dim(0), batch = projection.dim(1), gates = weight.dim(0);

  std::vector<Hlo> start{zeros(emitter, dtype, {positions, batch, weight.dim(1)}),
                         convert(call.tensor(1), compute)};
  if (Layer::has_c) start.push_back(convert(call.tensor(2), compute));
  if (keep)
    start.push_back(zeros(emitter, dtype, {positions, batch, Layer::reads_h ? gates / 3 * 4 : gates}));
  if (keep && Layer::has_c) start.push_back(zeros(emitter, compute, {positions, batch, gates / 4}));

  auto pass = [&](const Hlo& count, const std::vector<Hlo>& carried) -> Result {
    const Position here(count, positions, reverse);
    State before{carried[1], {}};
    if (Layer::has_c) before.c = carried[2];
    Hlo hidden = times(before.h, weight, /*transposed=*/true);
    if (bias) hidden = hidden + convert(*bias, compute);
    Hlo opened = Layer::gates(convert(here.of(projection), compute), hidden);
    State after = Layer::forward(opened, before);
    if (shrink) after.h = times(after.h, *shrink, /*transposed=*/true);
    if (valid) after = chosen(unsqueeze(here.of(*valid), 1), after, before);
    Result next{here.put(carried[0], after.h), after.h};
    if (Layer::has_c) next.push_back(*after.c);
    if (keep) next.push_back(here.put(carried[next.size()], opened));
    if (keep && Layer::has_c) next.push_back(here.put(carried[next.size()], *before.c));
    return next;
  };
  Result end = emitter.repeat(positions, start, pass);
  Result result{end[0], convert(end[1], call.tensor(1).dtype())};
  result.push_back(Layer::has_c ? convert(end[2], call.tensor(2).dtype()) : nothing(call));
  for (size_t kept = Layer::has_c ? 3 : 2; result.size() < 5; ++kept)
    result.push_back(kept < end.size() ? end[kept] : nothing(call));
  return result;
}

// h as each position got it.
Hlo incoming(const Hlo& h, const Hlo& first, bool reverse) {
  Hlo start = unsqueeze(convert(first, h.dtype()), 0);
  int64_t positions = h.dim(0);
  return reverse ? h.emitter->concatenate({slice_dim(h, 0, 1, positions), start}, 0)
                 : h.emitter->concatenate({start, slice_dim(h, 0, 0, positions - 1)}, 0);
}

template <class Layer>
Result backward(const Call& call) {
  Emitter& emitter = call.emitter;
  const std::optional<Hlo> of_all = optional(call, 0), shrink = optional(call, 6), valid = optional(call, 7);
  const Hlo &first = call.tensor(3), &weight = call.tensor(4), &h = call.tensor(8);
  const bool reverse = call.boolean(11);
  const Dtype dtype = h.dtype(), compute = compute_type(dtype);
  const int64_t positions = h.dim(0), batch = h.dim(1);
  const Hlo& gates = Layer::keeps_gates ? call.tensor(9) : h;
  const Hlo before_all = incoming(h, first, reverse);
  auto given = [&](int argument, const Dims& dims) {
    return call.has(argument) ? convert(call.tensor(argument), compute) : zeros(emitter, compute, dims);
  };

  std::vector<Hlo> start{zeros(emitter, dtype, {positions, batch, weight.dim(0)}), given(1, first.dims())};
  if (Layer::has_c) start.push_back(given(2, {batch, weight.dim(0) / 4}));
  if (shrink) start.push_back(zeros(emitter, dtype, h.dims()));

  auto pass = [&](const Hlo& count, const std::vector<Hlo>& carried) -> Result {
    const Position here(count, positions, !reverse);
    auto at = [&](const Hlo& all) { return convert(here.of(all), compute); };
    State slope{carried[1], {}}, before;
    if (Layer::has_c) slope.c = carried[2], before.c = at(call.tensor(10));
    if (Layer::reads_h) before.h = at(before_all);
    if (of_all) slope.h = slope.h + at(*of_all);
    Hlo opened = at(gates);
    State unshrunk = slope;
    if (shrink) unshrunk.h = times(slope.h, *shrink, /*transposed=*/false);
    Slopes slopes = Layer::backward(opened, before, unshrunk);
    Hlo input = slopes.input;
    State earlier{times(Layer::hidden_slope(input, opened), weight, /*transposed=*/false), slopes.c};
    if (slopes.h) earlier.h = earlier.h + *slopes.h;
    std::optional<Hlo> here_valid;
    if (valid) {
      here_valid = unsqueeze(here.of(*valid), 1);
      earlier = chosen(here_valid, earlier, slope);
      input = select(*here_valid, input, 0);
    }
    Result next{here.put(carried[0], input), earlier.h};
    if (Layer::has_c) next.push_back(*earlier.c);
    if (shrink)
      next.push_back(here.put(carried.back(), here_valid ? select(*here_valid, slope.h, 0) : slope.h));
    return next;
  };
  Result end = emitter.repeat(positions, start, pass);
  const Hlo of_hidden = Layer::hidden_slope(convert(end[0], compute), convert(gates, compute));
  Result result{end[0], convert(end[1], first.dtype())};
  result.push_back(Layer::has_c ? convert(end[2], dtype) : nothing(call));
  result.push_back(total(of_hidden, before_all, weight));
  result.push_back(call.has(5) ? convert(sum(of_hidden, {0, 1}, false), call.tensor(5).dtype())
                               : nothing(call));
  if (!shrink) return result.push_back(nothing(call)), result;
  Hlo unshrunk = Layer::forward(convert(gates, compute), {h, call.tensor(10)}).h;
  result.push_back(total(end.back(), unshrunk, *shrink));
  return result;
}

}  // namespace

Rows recurrent_rows() {
  using TanhRnn = Rnn<tanh, tanh_slope>;
  using ReluRnn = Rnn<relu, relu_slope>;
  return {
      {"ivme::lstm_layer", forward<Lstm>},        {"ivme::lstm_layer_backward", backward<Lstm>},
      {"ivme::gru_layer", forward<Gru>},          {"ivme::gru_layer_backward", backward<Gru>},
      {"ivme::rnn_tanh_layer", forward<TanhRnn>}, {"ivme::rnn_tanh_layer_backward", backward<TanhRnn>},
      {"ivme::rnn_relu_layer", forward<ReluRnn>}, {"ivme::rnn_relu_layer_backward", backward<ReluRnn>},
  };
}

}  // namespace ivme::xla
