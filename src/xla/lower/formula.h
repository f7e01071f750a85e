#pragma once
#include <vector>

#include "xla/lower/op.h"

namespace ivme::xla {

// Arithmetic on values of a program under construction, so that a lowering reads as its formula. Operands
// must have one dtype; they are broadcast to each other, aligned at the last dimension. A number takes the
// dtype of the other operand.

Dims broadcast_dims(const Dims& a, const Dims& b);  // throws Error where they do not fit

Hlo operator+(const Hlo& a, const Hlo& b);
Hlo operator-(const Hlo& a, const Hlo& b);
Hlo operator*(const Hlo& a, const Hlo& b);
Hlo operator/(const Hlo& a, const Hlo& b);
Hlo operator+(const Hlo& a, double b);
Hlo operator-(const Hlo& a, double b);
Hlo operator*(const Hlo& a, double b);
Hlo operator/(const Hlo& a, double b);
Hlo operator-(double a, const Hlo& b);
Hlo operator+(double a, const Hlo& b);
Hlo operator*(double a, const Hlo& b);
Hlo operator/(double a, const Hlo& b);
Hlo operator-(const Hlo& a);

Hlo operator==(const Hlo& a, const Hlo& b);
Hlo operator!=(const Hlo& a, const Hlo& b);
Hlo operator<(const Hlo& a, const Hlo& b);
Hlo operator<=(const Hlo& a, const Hlo& b);
Hlo operator>(const Hlo& a, const Hlo& b);
Hlo operator>=(const Hlo& a, const Hlo& b);
Hlo operator==(const Hlo& a, double b);
Hlo operator!=(const Hlo& a, double b);
Hlo operator<(const Hlo& a, double b);
Hlo operator<=(const Hlo& a, double b);
Hlo operator>(const Hlo& a, double b);
Hlo operator>=(const Hlo& a, double b);

// Bits, or booleans.
Hlo operator&(const Hlo& a, const Hlo& b);
Hlo operator|(const Hlo& a, const Hlo& b);
Hlo operator^(const Hlo& a, const Hlo& b);
Hlo operator~(const Hlo& a);

Hlo exp(const Hlo& x);
Hlo log(const Hlo& x);
Hlo sqrt(const Hlo& x);
Hlo rsqrt(const Hlo& x);
Hlo tanh(const Hlo& x);
Hlo erf(const Hlo& x);
Hlo sigmoid(const Hlo& x);
Hlo log1p(const Hlo& x);
Hlo expm1(const Hlo& x);
Hlo floor(const Hlo& x);
Hlo abs(const Hlo& x);  // also of unsigned numbers and booleans
Hlo maximum(const Hlo& a, const Hlo& b);
Hlo minimum(const Hlo& a, const Hlo& b);
Hlo maximum(const Hlo& a, double b);
Hlo minimum(const Hlo& a, double b);
Hlo power(const Hlo& a, const Hlo& b);
Hlo is_nan(const Hlo& x);
Hlo select(const Hlo& condition, const Hlo& a, const Hlo& b);
Hlo select(const Hlo& condition, const Hlo& a, double b);
Hlo select(const Hlo& condition, double a, const Hlo& b);

Hlo like(const Hlo& x, double value);  // a constant of x's shape
Hlo convert(const Hlo& x, Dtype dtype);
Hlo truth(const Hlo& x);  // x != 0

// --- dimensions
// ----------------------------------------------------------------------------------------------

int64_t wrap(int64_t dimension,
             int rank);  // −1 is the last; throws Error outside [−rank, rank); rank 0 counts as 1
Dims wrap(const Dims& dimensions, int rank);  // sorted; empty: all
Dims range(int begin, int end);
Dims without(const Dims& dims, const Dims& dimensions);
int64_t product(const Dims& dims);
int64_t count(const Hlo& x, const Dims& dimensions);  // elements along these dimensions
Dtype index_type(int64_t count);                      // for positions below it: i32 where that is enough

// Reductions: `dimensions` sorted. With keep: they stay, as 1.
Hlo reduce(Reduction reduction, const Hlo& x, const Dims& dimensions, bool keep);
Hlo sum(const Hlo& x, const Dims& dimensions, bool keep = true);
Hlo mean(const Hlo& x, const Dims& dimensions, bool keep = true);
Hlo unsqueeze(const Hlo& x, int64_t dimension);
// A vector along `dimension` of something with `rank` dimensions: dims [1, …, n, …, 1].
Hlo along(const Hlo& vector, int64_t dimension, int rank);
Hlo slice_dim(const Hlo& x, int64_t dimension, int64_t start, int64_t limit, int64_t stride = 1);

}  // namespace ivme::xla
