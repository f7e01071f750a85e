#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "xla/lower/emitter.h"

namespace ivme::xla {
namespace {

std::string hexadecimal(uint64_t bits, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llX", digits, static_cast<unsigned long long>(bits));
  return text;
}

// Infinities and not-a-numbers have no decimal form: their bits, in the width of the dtype.
std::string special_bits(double value, Dtype dtype) {
  bool nan = std::isnan(value), negative = std::signbit(value) && !nan;
  switch (dtype) {
    case Dtype::f64:
      return hexadecimal((nan ? 0x7FF8ull : negative ? 0xFFF0ull : 0x7FF0ull) << 48, 16);
    case Dtype::f32:
      return hexadecimal((nan ? 0x7FC0ull : negative ? 0xFF80ull : 0x7F80ull) << 16, 8);
    case Dtype::bf16:
      return hexadecimal(nan ? 0x7FC0 : negative ? 0xFF80 : 0x7F80, 4);
    default:
      return hexadecimal(nan ? 0x7E00 : negative ? 0xFC00 : 0x7C00, 4);
  }
}

// What the dtype holds of it: 1e39 is infinite as f32.
double rounded(double value, Dtype dtype) {
  if (dtype == Dtype::f32 || dtype == Dtype::bf16) return static_cast<double>(static_cast<float>(value));
  if (dtype == Dtype::f16 && std::abs(value) >= 65520) return std::copysign(INFINITY, value);
  return value;
}

std::string decimal(double value, Dtype dtype) {
  value = rounded(value, dtype);
  if (!std::isfinite(value)) return special_bits(value, dtype);
  char text[40];
  char* end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  std::string result(text, end);
  if (result.find('.') == std::string::npos) result.insert(result.find('e'), ".0");
  return result;
}

int64_t least_integer(Dtype dtype, bool greatest) {
  int bits = static_cast<int>(size_of(dtype)) * 8;
  if (dtype == Dtype::boolean) return greatest;
  if (dtype == Dtype::u8) return greatest ? 255 : 0;
  int64_t most = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return greatest ? most : -most - 1;
}

}  // namespace

Hlo Emitter::literal(const std::string& value, const Shape& shape) {
  std::string line = "stablehlo.constant dense<" + value + "> : " + to_string(shape);
  auto found = constants_.find(line);
  if (found != constants_.end()) return {this, found->second, shape};
  Hlo result = write(line, shape);
  constants_.emplace(std::move(line), result.name);
  return result;
}

Hlo Emitter::constant(double value, const Shape& shape) {
  if (is_floating(shape.dtype)) return literal(decimal(value, shape.dtype), shape);
  if (shape.dtype == Dtype::boolean) return literal(value != 0 ? "true" : "false", shape);
  return constant(static_cast<int64_t>(value), shape);
}

Hlo Emitter::constant(int64_t value, const Shape& shape) {
  if (is_floating(shape.dtype)) return constant(static_cast<double>(value), shape);
  if (shape.dtype == Dtype::boolean) return literal(value != 0 ? "true" : "false", shape);
  int unused = 64 - static_cast<int>(size_of(shape.dtype)) * 8;
  uint64_t low = static_cast<uint64_t>(value) << unused;
  int64_t wrapped =
      shape.dtype == Dtype::u8 ? static_cast<int64_t>(low >> unused) : std::bit_cast<int64_t>(low) >> unused;
  return literal(std::to_string(wrapped), shape);
}

Hlo Emitter::constants(const std::vector<double>& values, Dtype dtype) {
  std::string text = "[";
  for (double value : values) text += (text.size() == 1 ? "" : ", ") + decimal(value, dtype);
  return literal(text + "]", {dtype, {static_cast<int64_t>(values.size())}});
}

Hlo Emitter::constants(const Dims& values) {
  std::string joined;
  for (int64_t value : values) joined += (joined.empty() ? "" : ", ") + std::to_string(value);
  return literal("[" + joined + "]", {Dtype::i64, {static_cast<int64_t>(values.size())}});
}

Hlo Emitter::neutral(Reduction reduction, Dtype dtype) {
  Shape shape{dtype, {}};
  switch (reduction) {
    case Reduction::add:
    case Reduction::logical_or:
      return constant(0, shape);
    case Reduction::multiply:
    case Reduction::logical_and:
      return constant(1, shape);
    case Reduction::maximum:
    case Reduction::minimum:
      break;
  }
  bool greatest = reduction == Reduction::minimum;
  if (is_floating(dtype)) return constant(greatest ? INFINITY : -INFINITY, shape);
  return constant(least_integer(dtype, greatest), shape);
}

}  // namespace ivme::xla
