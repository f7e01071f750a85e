#include "xla/lower/formula.h"

#include <algorithm>
#include <limits>

#include "ivme/error.h"

namespace ivme::xla {
namespace {

Hlo binary(const char* instruction, const Hlo& a, const Hlo& b) {
  Dims dims = broadcast_dims(a.dims(), b.dims());
  return a.emitter->binary(instruction, a.emitter->broadcast(a, dims), a.emitter->broadcast(b, dims));
}

Hlo compare(const char* direction, const Hlo& a, const Hlo& b) {
  Dims dims = broadcast_dims(a.dims(), b.dims());
  return a.emitter->compare(direction, a.emitter->broadcast(a, dims), a.emitter->broadcast(b, dims));
}

Hlo unary(const char* instruction, const Hlo& x) { return x.emitter->unary(instruction, x); }

}  // namespace

Dims broadcast_dims(const Dims& a, const Dims& b) {
  const Dims &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Dims dims = longer;
  size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t &there = dims[offset + i], here = shorter[i];
    if (there == here || here == 1) continue;
    if (there != 1) {
      throw Error(
          "Tensors of dims " + to_string({Dtype::f32, a}) + " and " + to_string({Dtype::f32, b}) +
          " were to be combined on xla. Dimensions must be equal, counted from the last, or 1. Check the "
          "shapes of the operands.");
    }
    there = here;
  }
  return dims;
}

Hlo operator+(const Hlo& a, const Hlo& b) { return binary("add", a, b); }
Hlo operator-(const Hlo& a, const Hlo& b) { return binary("subtract", a, b); }
Hlo operator*(const Hlo& a, const Hlo& b) { return binary("multiply", a, b); }
Hlo operator/(const Hlo& a, const Hlo& b) { return binary("divide", a, b); }
Hlo operator+(const Hlo& a, double b) { return a + like(a, b); }
Hlo operator-(const Hlo& a, double b) { return a - like(a, b); }
Hlo operator*(const Hlo& a, double b) { return a * like(a, b); }
Hlo operator/(const Hlo& a, double b) { return a / like(a, b); }
Hlo operator-(double a, const Hlo& b) { return like(b, a) - b; }
Hlo operator+(double a, const Hlo& b) { return like(b, a) + b; }
Hlo operator*(double a, const Hlo& b) { return like(b, a) * b; }
Hlo operator/(double a, const Hlo& b) { return like(b, a) / b; }
Hlo operator-(const Hlo& a) { return unary("negate", a); }

Hlo operator==(const Hlo& a, const Hlo& b) { return compare("EQ", a, b); }
Hlo operator!=(const Hlo& a, const Hlo& b) { return compare("NE", a, b); }
Hlo operator<(const Hlo& a, const Hlo& b) { return compare("LT", a, b); }
Hlo operator<=(const Hlo& a, const Hlo& b) { return compare("LE", a, b); }
Hlo operator>(const Hlo& a, const Hlo& b) { return compare("GT", a, b); }
Hlo operator>=(const Hlo& a, const Hlo& b) { return compare("GE", a, b); }
Hlo operator==(const Hlo& a, double b) { return a == like(a, b); }
Hlo operator!=(const Hlo& a, double b) { return a != like(a, b); }
Hlo operator<(const Hlo& a, double b) { return a < like(a, b); }
Hlo operator<=(const Hlo& a, double b) { return a <= like(a, b); }
Hlo operator>(const Hlo& a, double b) { return a > like(a, b); }
Hlo operator>=(const Hlo& a, double b) { return a >= like(a, b); }

Hlo operator&(const Hlo& a, const Hlo& b) { return binary("and", a, b); }
Hlo operator|(const Hlo& a, const Hlo& b) { return binary("or", a, b); }
Hlo operator^(const Hlo& a, const Hlo& b) { return binary("xor", a, b); }
Hlo operator~(const Hlo& a) { return unary("not", a); }

Hlo exp(const Hlo& x) { return unary("exponential", x); }
Hlo log(const Hlo& x) { return unary("log", x); }
Hlo sqrt(const Hlo& x) { return unary("sqrt", x); }
Hlo rsqrt(const Hlo& x) { return unary("rsqrt", x); }
Hlo tanh(const Hlo& x) { return unary("tanh", x); }
Hlo erf(const Hlo& x) { return x.emitter->special("erf", x); }
Hlo sigmoid(const Hlo& x) { return unary("logistic", x); }
Hlo log1p(const Hlo& x) { return unary("log_plus_one", x); }
Hlo expm1(const Hlo& x) { return unary("exponential_minus_one", x); }
Hlo floor(const Hlo& x) { return unary("floor", x); }
Hlo abs(const Hlo& x) { return x.dtype() == Dtype::u8 || x.dtype() == Dtype::boolean ? x : unary("abs", x); }
Hlo maximum(const Hlo& a, const Hlo& b) { return binary("maximum", a, b); }
Hlo minimum(const Hlo& a, const Hlo& b) { return binary("minimum", a, b); }
Hlo maximum(const Hlo& a, double b) { return maximum(a, like(a, b)); }
Hlo minimum(const Hlo& a, double b) { return minimum(a, like(a, b)); }
Hlo power(const Hlo& a, const Hlo& b) { return binary("power", a, b); }
Hlo is_nan(const Hlo& x) { return x != x; }

Hlo select(const Hlo& condition, const Hlo& a, const Hlo& b) {
  Emitter& emitter = *condition.emitter;
  Dims dims = broadcast_dims(condition.dims(), broadcast_dims(a.dims(), b.dims()));
  return emitter.select(emitter.broadcast(condition, dims), emitter.broadcast(a, dims),
                        emitter.broadcast(b, dims));
}
Hlo select(const Hlo& condition, const Hlo& a, double b) { return select(condition, a, like(a, b)); }
Hlo select(const Hlo& condition, double a, const Hlo& b) { return select(condition, like(b, a), b); }

Hlo like(const Hlo& x, double value) { return x.emitter->constant(value, x.shape); }
Hlo convert(const Hlo& x, Dtype dtype) { return x.emitter->convert(x, dtype); }
Hlo truth(const Hlo& x) { return x.dtype() == Dtype::boolean ? x : x != 0.0; }

int64_t wrap(int64_t dimension, int rank) {
  int64_t dims = std::max(rank, 1);
  if (dimension < -dims || dimension >= dims) {
    throw Error("Dimension " + std::to_string(dimension) + " of a tensor with " + std::to_string(rank) +
                " dimensions was asked for on xla. It must be at least " + std::to_string(-dims) +
                " and below " + std::to_string(dims) + ".");
  }
  return dimension < 0 ? dimension + dims : dimension;
}

Dims wrap(const Dims& dimensions, int rank) {
  if (dimensions.empty() || rank == 0) return range(0, rank);
  Dims wrapped;
  for (int64_t dimension : dimensions) wrapped.push_back(wrap(dimension, rank));
  std::sort(wrapped.begin(), wrapped.end());
  return wrapped;
}

Dims range(int begin, int end) {
  Dims numbers;
  for (int i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

Dims without(const Dims& dims, const Dims& dimensions) {
  Dims left;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(i)) == dimensions.end())
      left.push_back(dims[i]);
  }
  return left;
}

int64_t product(const Dims& dims) { return Shape{Dtype::f32, dims}.count(); }

int64_t count(const Hlo& x, const Dims& dimensions) {
  int64_t elements = 1;
  for (int64_t dimension : dimensions) elements *= x.dim(static_cast<int>(dimension));
  return elements;
}

Dtype index_type(int64_t count) {
  return count <= std::numeric_limits<int32_t>::max() ? Dtype::i32 : Dtype::i64;
}

Hlo reduce(Reduction reduction, const Hlo& x, const Dims& dimensions, bool keep) {
  Hlo reduced = x.emitter->reduce(reduction, x, dimensions);
  if (!keep) return reduced;
  Dims dims = x.dims();
  for (int64_t dimension : dimensions) dims[static_cast<size_t>(dimension)] = 1;
  return x.emitter->reshape(reduced, dims);
}

Hlo sum(const Hlo& x, const Dims& dimensions, bool keep) {
  return reduce(Reduction::add, x, dimensions, keep);
}
Hlo mean(const Hlo& x, const Dims& dimensions, bool keep) {
  return sum(x, dimensions, keep) / static_cast<double>(count(x, dimensions));
}

Hlo unsqueeze(const Hlo& x, int64_t dimension) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + dimension, 1);
  return x.emitter->reshape(x, dims);
}

Hlo along(const Hlo& vector, int64_t dimension, int rank) {
  Dims dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(dimension)] = product(vector.dims());
  return vector.emitter->reshape(vector, dims);
}

Hlo slice_dim(const Hlo& x, int64_t dimension, int64_t start, int64_t limit, int64_t stride) {
  Dims starts(x.dims().size(), 0), limits = x.dims(), strides(x.dims().size(), 1);
  auto at = static_cast<size_t>(dimension);
  starts[at] = start;
  limits[at] = limit;
  strides[at] = stride;
  return x.emitter->slice(x, starts, limits, strides);
}

}  // namespace ivme::xla
