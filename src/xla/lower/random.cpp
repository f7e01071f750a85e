#include <array>
#include <cmath>
#include <numbers>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// Threefry-2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011). Written
// as arithmetic on elements, so that a number depends on seed, position and its own index, and not on how the
// array is spread over devices.
struct Words {
  Hlo first, second;  // i32
};

Hlo rotate(const Hlo& x, int bits) {
  Emitter& emitter = *x.emitter;
  return emitter.binary("shift_left", x, like(x, bits)) |
         emitter.binary("shift_right_logical", x, like(x, 32 - bits));
}

Words threefry(const std::array<Hlo, 2>& key, Words counter) {
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  std::array<Hlo, 3> keys{key[0], key[1], key[0] ^ key[1] ^ like(key[0], 0x1BD11BDA)};
  counter.first = counter.first + keys[0];
  counter.second = counter.second + keys[1];
  for (int group = 0; group < 5; ++group) {
    for (int rotation : rotations[group % 2]) {
      counter.first = counter.first + counter.second;
      counter.second = rotate(counter.second, rotation) ^ counter.first;
    }
    counter.first = counter.first + keys[static_cast<size_t>(group + 1) % 3];
    counter.second = counter.second + keys[static_cast<size_t>(group + 2) % 3] + (group + 1.0);
  }
  return counter;
}

Hlo low_word(const Hlo& x) { return convert(x & like(x, 0xFFFFFFFF), Dtype::i32); }
Hlo high_word(const Hlo& x) { return low_word(x.emitter->binary("shift_right_logical", x, like(x, 32))); }

// Two words for each element. The seed's first number is the key; its second number and the operation's
// position in the step (each below 2³²) and the element's index are the counter.
Words random_words(const Hlo& seed, const Dims& sizes, int64_t position) {
  Emitter& emitter = *seed.emitter;
  if (seed.dims() != Dims{2} || seed.dtype() != Dtype::i64) {
    throw Error("Random numbers were asked for on xla with a seed of " + to_string(seed.shape) +
                ". A seed is tensor<2xi64>: the seed and the number of the step.");
  }
  Hlo number = emitter.reshape(slice_dim(seed, 0, 0, 1), {}),
      step = emitter.reshape(slice_dim(seed, 0, 1, 2), {});
  Words stream = threefry({low_word(number), high_word(number)},
                          {low_word(step), emitter.constant(position, {Dtype::i32, {}})});
  int64_t count = product(sizes);
  Dtype type = index_type(count);
  Hlo index = emitter.reshape(emitter.iota({type, {count}}, 0), sizes);
  Words counter =
      type == Dtype::i32 ? Words{index, like(index, 0)} : Words{low_word(index), high_word(index)};
  return threefry({stream.first, stream.second}, counter);
}

// As many bits as the dtype's numbers below 1 are apart, so that none is rounded up to 1.
int mantissa_bits(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return 11;
    case Dtype::bf16:
      return 8;
    default:
      return 24;
  }
}

// In [0, 1); of both words for f64, in f32 for half precisions.
Hlo uniform(const Words& words, Dtype dtype) {
  Emitter& emitter = *words.first.emitter;
  Dtype compute = compute_type(dtype);
  auto top = [&](const Hlo& word, int bits) {
    return convert(emitter.binary("shift_right_logical", word, like(word, 32 - bits)), compute);
  };
  if (dtype == Dtype::f64) return (top(words.first, 27) * 0x1p26 + top(words.second, 26)) * 0x1p-53;
  return top(words.first, mantissa_bits(dtype)) * std::ldexp(1.0, -mantissa_bits(dtype));
}

Result random_uniform(const Call& call) {
  Dtype dtype = call.dtype(2).value_or(Dtype::f32);
  Words words = random_words(call.tensor(0), call.integers(1), call.integer(3));
  return {convert(uniform(words, dtype), dtype)};
}

// Box and Muller's transformation: one of the two numbers that it gives.
Result random_normal(const Call& call) {
  Dtype dtype = call.dtype(2).value_or(Dtype::f32), compute = compute_type(dtype);
  Words words = random_words(call.tensor(0), call.integers(1), call.integer(3));
  Hlo radius = sqrt(log1p(-uniform(words, compute)) * -2);
  Words other{words.second, words.first};
  Hlo angle = uniform(other, compute) * (2 * std::numbers::pi);
  return {convert(radius * call.emitter.unary("cosine", angle), dtype)};
}

// 1 with the given probability, a number or a tensor; else 0.
Result random_bernoulli(const Call& call) {
  Dtype dtype = call.dtype(3).value_or(Dtype::f32), compute = dtype == Dtype::f64 ? dtype : Dtype::f32;
  Words words = random_words(call.tensor(0), call.integers(2), call.integer(4));
  Hlo probability = call.argument(1).kind == Argument::Kind::operand ? convert(call.tensor(1), compute)
                                                                     : call.scalar(1, compute);
  return {convert(uniform(words, compute) < probability, dtype)};
}

Result dropout_backward(const Call& call) {  // gradient, mask, scale
  const Hlo& gradient = call.tensor(0);
  Dtype compute = compute_type(gradient.dtype());
  Hlo kept = convert(call.tensor(1), compute) * call.scalar(2, compute);
  return {convert(convert(gradient, compute) * kept, gradient.dtype())};
}

}  // namespace

Rows random_rows() {
  return {
      {"ivme::random_uniform", random_uniform},                  // seed; sizes, dtype, position
      {"ivme::random_normal", random_normal},                    // seed; sizes, dtype, position
      {"ivme::random_bernoulli", random_bernoulli, varying<1>},  // seed; probability, sizes, dtype, position
      {"aten::native_dropout_backward", dropout_backward},
  };
}

}  // namespace ivme::xla
