// Random numbers from (seed, step, position): which numbers an operation draws depends on the seed, on how
// many steps have ended and on how many random operations the step has had before; not on where the host
// reads in between.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ivme/error.h"
#include "process/seed_rank.h"
#include "xla/lower/op.h"
#include "xla/step.h"
#include "xla/trace/arguments.h"
#include "xla/trace/origin.h"
#include "xla/trace/record.h"
#include "xla/trace/storage.h"

namespace ivme::xla {
namespace {

using Generator = std::optional<at::Generator>;

// The seed in force. One that was set since the last step begins the count anew.
int64_t seed_now(Context& context) {
  uint64_t seed = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  if (context.seeded != std::pair(seed, times_seeded())) {
    context.seeded = {seed, times_seeded()};
    context.step = 0;
  }
  return static_cast<int64_t>(seed);
}

// tensor<2xi64>: the seed and the number of the step, which every run gets anew.
Value seed_of(Context& context) {
  if (context.seed) return context.seed;
  const std::function<int64_t()> numbers[] = {
      [&context] { return seed_now(context); },
      [&context] { return static_cast<int64_t>(context.step); },
  };
  std::vector<Value> both;
  for (const auto& number : numbers) {
    Value value{
        make_number(Dtype::i64, number(), std::make_shared<const HostNumber>([number] { return number(); }))};
    both.push_back({make_operation(row("ivme::expand"), {value}, {operand(0), whole_numbers({1})})});
  }
  Argument list = operand(0);
  list.kind = Argument::Kind::operands;
  list.integers = {1, 1};
  context.seed = {make_operation(row("aten::cat"), std::move(both), {list, whole_number(0)})};
  return context.seed;
}

// Random numbers in the shape of a tensor, as f32 unless the tensor is f64 or a dtype is given.
class Draw {
 public:
  explicit Draw(const at::Tensor& like, std::optional<Dtype> dtype = {})
      : context_(random_context(storage_of(like).context())),
        seed_(seed_of(*context_)),
        sizes_(whole_numbers(like.sizes())),
        dtype_(dtype.value_or(like.scalar_type() == at::kDouble ? Dtype::f64 : Dtype::f32)) {}

  Value uniform() { return draw("ivme::random_uniform", {}); }
  Value normal() { return draw("ivme::random_normal", {}); }
  Value bernoulli(double probability) {
    return draw("ivme::random_bernoulli", {make_number(dtype_, probability)});
  }
  Value bernoulli(Value probability) { return draw("ivme::random_bernoulli", std::move(probability)); }

  // value · factor + term
  Value affine(Value value, double factor, double term) const {
    Value scaled{make_operation(row("aten::mul.Scalar"), {std::move(value), {make_number(dtype_, factor)}},
                                {operand(0), number(1)})};
    return {make_operation(row("aten::add.Scalar"),
                           {std::move(scaled), {make_number(dtype_, term)}, {make_number(dtype_, 1.0)}},
                           {operand(0), number(1), number(2)})};
  }

 private:
  Value draw(std::string_view name, Value probability) {
    std::vector<Value> operands{seed_};
    std::vector<Argument> arguments{operand(0)};
    if (probability) {
      bool is_number = probability.node->kind == Node::Kind::number;
      operands.push_back(std::move(probability));
      arguments.push_back(is_number ? number(1) : operand(1));
    }
    arguments.push_back(sizes_);
    arguments.push_back(dtype_argument(dtype_));
    arguments.push_back(whole_number(context_->position++));
    return {make_operation(row(name), std::move(operands), std::move(arguments))};
  }

  ContextPtr context_;
  Value seed_;
  Argument sizes_;
  Dtype dtype_;
};

at::Tensor& fill(at::Tensor& self, Value value) {
  write(self, std::move(value), nullptr);
  return self;
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Generator) {
  Draw draw(self);
  return fill(self, draw.affine(draw.uniform(), to - from, from));
}

at::Tensor& normal_(at::Tensor& self, double mean, double deviation, Generator) {
  Draw draw(self);
  return fill(self, draw.affine(draw.normal(), deviation, mean));
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, Generator) {
  return fill(self, Draw(self).bernoulli(p));
}

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, Generator) {
  return fill(self, Draw(self).bernoulli(read(p.expand(self.sizes()))));
}

at::Tensor bernoulli(const at::Tensor& p, Generator) {
  return make_tensor(cast(Draw(p).bernoulli(read(p)), dtype_of(p.scalar_type())), storage_of(p).context());
}

// Whole numbers from `from` to below `to`: 53 random bits, so each is as likely for ranges far below 2^53.
at::Tensor& random_between_(at::Tensor& self, int64_t from, int64_t to) {
  if (from >= to)
    throw Error("random_ was asked for whole numbers from " + std::to_string(from) + " to below " +
                std::to_string(to) + ". There are none.");
  Draw draw(self, Dtype::f64);
  Value value = draw.affine(draw.uniform(), static_cast<double>(to - from), 0);
  value = cast({make_operation(row("aten::floor"), {std::move(value)}, {operand(0)})}, Dtype::i64);
  return fill(self,
              {make_operation(
                  row("aten::add.Scalar"),
                  {std::move(value), {make_number(Dtype::i64, from)}, {make_number(Dtype::i64, int64_t{1})}},
                  {operand(0), number(1), number(2)})});
}

// The numbers that the type can hold exactly; of int64 those that 53 bits can tell apart.
int64_t end_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return 2;
    case at::kByte:
      return 256;
    case at::kChar:
      return 128;
    case at::kShort:
      return 1 << 15;
    case at::kInt:
      return int64_t{1} << 31;
    case at::kHalf:
      return 1 << 11;
    case at::kBFloat16:
      return 1 << 8;
    case at::kFloat:
      return int64_t{1} << 24;
    default:
      return int64_t{1} << 53;
  }
}

at::Tensor& random_from_(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator) {
  return random_between_(self, from, to.value_or(end_of(self.scalar_type())));
}
at::Tensor& random_to_(at::Tensor& self, int64_t to, Generator) { return random_between_(self, 0, to); }
at::Tensor& random_(at::Tensor& self, Generator) {
  return random_between_(self, 0, end_of(self.scalar_type()));
}

// An order is drawn on the host: it needs a sort, and is needed there most often.
at::Tensor& randperm_out(int64_t n, Generator, at::Tensor& result) {
  replace(result, to_device(at::randperm(n, at::TensorOptions().dtype(result.scalar_type()))), nullptr);
  return result;
}

// −log(1 − u), above 0: its logarithm is taken where classes are drawn.
at::Tensor& exponential_(at::Tensor& self, double rate, Generator) {
  const auto type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor uniform = at::empty_like(self, type).uniform_(0, 1);
  return self.copy_(uniform.neg().log1p().neg().clamp_min(0x1p-25).div(rate));
}

at::Tensor& geometric_(at::Tensor& self, double p, Generator) {
  at::Tensor exponential = at::empty_like(self, at::kFloat).exponential_(-std::log1p(-p));
  return self.copy_(exponential.ceil());
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double deviation, Generator) {
  return self.copy_(at::empty_like(self).normal_(mean, deviation).exp());
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Generator) {
  at::Tensor angle = at::empty_like(self).uniform_(-0.5, 0.5).mul(std::numbers::pi);
  return self.copy_(angle.tan().mul(sigma).add(median));
}

at::Tensor normal_of_means(const at::Tensor& mean, double deviation, Generator) {
  return at::empty_like(mean).normal_(0, deviation).add(mean);
}
at::Tensor normal_of_deviations(double mean, const at::Tensor& deviation, Generator) {
  return at::empty_like(deviation).normal_().mul(deviation).add(mean);
}
at::Tensor normal_of_both(const at::Tensor& mean, const at::Tensor& deviation, Generator) {
  auto both = at::broadcast_tensors({mean, deviation});
  return at::empty_like(both[0]).normal_().mul(both[1]).add(both[0]);
}

// Of exponential variables with the weights as rates, the first to come is a class drawn by weight, and the
// first n are n classes drawn without replacement.
at::Tensor multinomial(const at::Tensor& weights, int64_t samples, bool replacement, Generator) {
  if (samples < 1 || (!replacement && samples > weights.size(-1)))
    throw Error("multinomial was asked on xla for " + std::to_string(samples) + " of " +
                std::to_string(weights.size(-1)) +
                " classes. Ask for at least one; without replacement, for no more than there are.");
  if (!replacement) {
    at::Tensor first = weights / at::empty_like(weights).exponential_(1);
    return std::get<1>(first.topk(samples, -1));
  }
  at::DimVector sizes(weights.sizes());
  sizes.insert(sizes.end() - 1, samples);
  at::Tensor each = weights.unsqueeze(-2).expand(sizes);
  return (each / at::empty_like(each).exponential_(1)).argmax(-1);
}

TORCH_LIBRARY_IMPL(aten, XLA, library) {
  library.impl("exponential_", Located<exponential_>::call);
  library.impl("geometric_", Located<geometric_>::call);
  library.impl("log_normal_", Located<log_normal_>::call);
  library.impl("cauchy_", Located<cauchy_>::call);
  library.impl("normal.Tensor_float", Located<normal_of_means>::call);
  library.impl("normal.float_Tensor", Located<normal_of_deviations>::call);
  library.impl("normal.Tensor_Tensor", Located<normal_of_both>::call);
  library.impl("multinomial", Located<multinomial>::call);
  library.impl("uniform_", Located<uniform_>::call);
  library.impl("normal_", Located<normal_>::call);
  library.impl("bernoulli_.float", Located<bernoulli_float_>::call);
  library.impl("bernoulli_.Tensor", Located<bernoulli_tensor_>::call);
  library.impl("bernoulli", Located<bernoulli>::call);
  library.impl("random_.from", Located<random_from_>::call);
  library.impl("random_.to", Located<random_to_>::call);
  library.impl("random_", Located<random_>::call);
  library.impl("randperm.generator_out", Located<randperm_out>::call);
}

}  // namespace

void register_random() {}

}  // namespace ivme::xla
