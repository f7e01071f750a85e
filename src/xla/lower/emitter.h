#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "xla/graph.h"

namespace ivme::xla {

class Emitter;
using Dims = std::vector<int64_t>;

// A value of the program under construction: "%12" and its shape.
struct Hlo {
  Emitter* emitter = nullptr;
  std::string name;
  Shape shape;

  int rank() const { return static_cast<int>(shape.dims.size()); }
  int64_t dim(int i) const { return shape.dims[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
  const Dims& dims() const { return shape.dims; }
  Dtype dtype() const { return shape.dtype; }
};

// What a reduction combines values with. Its neutral element is the start: 0, 1, −∞ or the least integer, ….
enum class Reduction : uint8_t { add, multiply, maximum, minimum, logical_and, logical_or };

struct DotDimensions {
  Dims left_batch, right_batch, left_contracted, right_contracted;
};

// One entry for each spatial dimension. Padding may be negative.
struct Window {
  Dims size;  // reduce_window only
  Dims stride, low, high, left_dilation, right_dilation;
};

// Dimension numbers in StableHLO's notation, such as "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", where the
// digits stand for the spatial dimensions in order; and the dims of the result.
struct Convolution {
  std::string dimensions;
  Window window;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
  Dims result;
};

// Indices have one index vector for each position, in their last dimension; vector component k belongs to
// dimension indexed[k] of the operand. Those dimensions are taken at one index; of the others, the whole is
// taken (they are the window). `window` names the dimensions of the gathered result, or of the updates, that
// the window's fill, in order.
struct IndexDimensions {
  Dims indexed;
  Dims window;
};

// Writes StableHLO, one line for each instruction. One function for each instruction that lowerings use,
// which computes the shape of its result; identities (a reshape to the same shape, a conversion to the same
// dtype) write nothing, and equal constants are written once. Throws Error where shapes or
// dtypes of operands do not fit; the plugin's compiler finds the rest. Not for several threads at once.
class Emitter {
 public:
  const std::string& text() const { return text_; }
  // A value that is defined elsewhere: an argument of the program.
  Hlo name_value(std::string name, Shape shape) { return {this, std::move(name), std::move(shape)}; }

  Hlo constant(double value, const Shape& shape);
  Hlo constant(int64_t value, const Shape& shape);
  Hlo constant(int value, const Shape& shape) { return constant(int64_t{value}, shape); }
  Hlo constants(const std::vector<double>& values, Dtype dtype);  // 1-dimensional
  Hlo constants(const Dims& values);                              // 1-dimensional, i64
  Hlo neutral(Reduction reduction, Dtype dtype);                  // 0-dimensional
  Hlo iota(const Shape& shape, int dimension);

  Hlo convert(const Hlo& x, Dtype dtype);  // floating to whole: towards 0; to boolean: x != 0
  Hlo bitcast(const Hlo& x, Dtype dtype);  // between dtypes of one size
  Hlo reshape(const Hlo& x, const Dims& dims);
  Hlo transpose(const Hlo& x, const Dims& permutation);  // dimension i of the result is permutation[i] of x
  Hlo broadcast_in_dim(const Hlo& x, const Dims& dims, const Dims& mapping);
  Hlo broadcast(const Hlo& x,
                const Dims& dims);  // aligned at the last dimension; throws Error if it does not fit
  Hlo slice(const Hlo& x, const Dims& starts, const Dims& limits, const Dims& strides = {});
  Hlo pad(const Hlo& x, const Hlo& value, const Dims& low, const Dims& high, const Dims& interior = {});
  Hlo concatenate(const std::vector<Hlo>& parts, int dimension);
  Hlo reverse(const Hlo& x, const Dims& dimensions);

  Hlo unary(std::string_view instruction, const Hlo& x);
  Hlo special(std::string_view function, const Hlo& x);  // CHLO's: erf, erf_inv, lgamma, asinh, …
  Hlo is_finite(const Hlo& x);
  Hlo binary(std::string_view instruction, const Hlo& a, const Hlo& b);
  Hlo compare(std::string_view direction, const Hlo& a, const Hlo& b);  // EQ NE LT LE GT GE
  Hlo select(const Hlo& condition, const Hlo& a, const Hlo& b);

  Hlo reduce(Reduction reduction, const Hlo& x, const Dims& dimensions);  // without these dimensions
  Hlo reduce_window(Reduction reduction, const Hlo& x, const Window& window);
  // Sorts x along a dimension, stably, and i64 positions with it. Not-a-numbers count as greatest.
  std::vector<Hlo> sort(const Hlo& x, int dimension, bool descending);

  // In highest precision. Sums of half-precision products are kept in `result`.
  Hlo dot(const Hlo& a, const Hlo& b, const DotDimensions& dimensions, Dtype result);
  Hlo convolve(const Hlo& x, const Hlo& kernel, const Convolution& convolution, Dtype result);

  Hlo gather(const Hlo& x, const Hlo& indices, const IndexDimensions& dimensions);
  // `reduction` combines what is there with what comes; null: the last that comes stays.
  Hlo scatter(const Hlo& x, const Hlo& indices, const Hlo& updates, const IndexDimensions& dimensions,
              const Reduction* reduction);
  Hlo update_slice(const Hlo& x, const Hlo& update, const Dims& starts);
  // At positions that the program computes: 0-dimensional whole numbers, one for each dimension. A slice that
  // would reach beyond the end begins earlier.
  Hlo dynamic_slice(const Hlo& x, const std::vector<Hlo>& starts, const Dims& sizes);
  Hlo dynamic_update_slice(const Hlo& x, const Hlo& update, const std::vector<Hlo>& starts);

  // What a pass makes of the carried values; it may use all values from outside too. Its results must have
  // the shapes of what it got. `pass` counts from 0, i32.
  using Pass = std::function<std::vector<Hlo>(const Hlo& pass, const std::vector<Hlo>& carried)>;
  // A loop: the text holds one pass, whatever `times` is. Gives what the last pass made; `start` for 0 times.
  std::vector<Hlo> repeat(int64_t times, const std::vector<Hlo>& start, const Pass& body);

 private:
  Hlo write(const std::string& instruction, Shape shape);
  Hlo literal(const std::string& value, const Shape& shape);

  std::string text_;
  int next_ = 0;
  // "dense<1> : tensor<i32>" → its name: those that can be seen from where the text ends.
  std::unordered_map<std::string, std::string> constants_;
};

}  // namespace ivme::xla
