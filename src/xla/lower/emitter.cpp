#include "xla/lower/emitter.h"

#include <algorithm>
#include <cmath>

#include "ivme/error.h"

namespace ivme::xla {
namespace {

std::string join(const Dims& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text;
}
std::string list(const Dims& values) { return "[" + join(values) + "]"; }
std::string array(const Dims& values) {
  return values.empty() ? "array<i64>" : "array<i64: " + join(values) + ">";
}

// "[[1, 2], [3, 4]]"
std::string pairs(const Dims& low, const Dims& high) {
  std::string text = "[";
  for (size_t i = 0; i < low.size(); ++i) text += (i == 0 ? "" : ", ") + list({low[i], high[i]});
  return text + "]";
}

std::string arrow(const std::vector<Shape>& from, const Shape& to) {
  std::string text = "(";
  for (size_t i = 0; i < from.size(); ++i) text += (i == 0 ? "" : ", ") + to_string(from[i]);
  return text + ") -> " + to_string(to);
}

// What a user can get wrong is refused here, where the operation is recorded; the plugin would only say so
// later.
void require(bool fits, const char* instruction, const std::vector<Shape>& shapes) {
  if (fits) return;
  std::string text;
  for (size_t i = 0; i < shapes.size(); ++i) text += (i == 0 ? "" : " and ") + to_string(shapes[i]);
  throw Error("A " + std::string(instruction) + " of " + text +
              " was to be recorded on xla. Their dimensions or dtypes " +
              "do not fit. Check the shapes and dtypes of the operation's tensors.");
}

bool same_sizes(const Hlo& a, const Dims& of_a, const Hlo& b, const Dims& of_b) {
  for (size_t i = 0; i < of_a.size(); ++i) {
    if (a.dim(static_cast<int>(of_a[i])) != b.dim(static_cast<int>(of_b[i]))) return false;
  }
  return true;
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::add:
      return "add";
    case Reduction::multiply:
      return "multiply";
    case Reduction::maximum:
      return "maximum";
    case Reduction::minimum:
      return "minimum";
    case Reduction::logical_and:
      return "and";
    case Reduction::logical_or:
      return "or";
  }
  return "";
}

// A region that combines two values of this type.
std::string combiner(const char* instruction, Dtype dtype) {
  std::string type = to_string({dtype, {}});
  return "({\n  ^bb0(%a: " + type + ", %b: " + type + "):\n    %c = stablehlo." + instruction +
         " %a, %b : " + type + "\n    stablehlo.return %c : " + type + "\n  })";
}

std::string keeper(Dtype dtype) {
  std::string type = to_string({dtype, {}});
  return "({\n  ^bb0(%a: " + type + ", %b: " + type + "):\n    stablehlo.return %b : " + type + "\n  })";
}

bool is_identity(const Dims& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

Hlo Emitter::write(const std::string& instruction, Shape shape) {
  std::string name = "%" + std::to_string(next_++);
  text_ += "  " + name + " = " + instruction + "\n";
  return {this, std::move(name), std::move(shape)};
}

Hlo Emitter::iota(const Shape& shape, int dimension) {
  return write("stablehlo.iota dim = " + std::to_string(dimension) + " : " + to_string(shape), shape);
}

Hlo Emitter::convert(const Hlo& x, Dtype dtype) {
  if (x.shape.dtype == dtype) return x;
  Shape shape{dtype, x.shape.dims};
  return write("stablehlo.convert " + x.name + " : " + arrow({x.shape}, shape), shape);
}

Hlo Emitter::bitcast(const Hlo& x, Dtype dtype) {
  Shape shape{dtype, x.shape.dims};
  return write("stablehlo.bitcast_convert " + x.name + " : " + arrow({x.shape}, shape), shape);
}

Hlo Emitter::reshape(const Hlo& x, const Dims& dims) {
  if (x.shape.dims == dims) return x;
  Shape shape{x.shape.dtype, dims};
  require(shape.count() == x.shape.count(), "reshape", {x.shape, shape});
  return write("stablehlo.reshape " + x.name + " : " + arrow({x.shape}, shape), shape);
}

Hlo Emitter::transpose(const Hlo& x, const Dims& permutation) {
  if (is_identity(permutation)) return x;
  Shape shape{x.shape.dtype, {}};
  for (int64_t from : permutation) shape.dims.push_back(x.dim(static_cast<int>(from)));
  return write(
      "stablehlo.transpose " + x.name + ", dims = " + list(permutation) + " : " + arrow({x.shape}, shape),
      shape);
}

Hlo Emitter::broadcast_in_dim(const Hlo& x, const Dims& dims, const Dims& mapping) {
  if (x.shape.dims == dims) return x;
  Shape shape{x.shape.dtype, dims};
  return write(
      "stablehlo.broadcast_in_dim " + x.name + ", dims = " + list(mapping) + " : " + arrow({x.shape}, shape),
      shape);
}

Hlo Emitter::broadcast(const Hlo& x, const Dims& dims) {
  Dims mapping;
  size_t rank = x.shape.dims.size();
  bool fits = rank <= dims.size();
  for (size_t i = 0; fits && i < rank; ++i) {
    mapping.push_back(static_cast<int64_t>(dims.size() - rank + i));
    fits = x.shape.dims[i] == 1 || x.shape.dims[i] == dims[dims.size() - rank + i];
  }
  if (!fits) {
    throw Error("A " + to_string(x.shape) + " was to be expanded to " + to_string({x.shape.dtype, dims}) +
                ". Dimensions must be equal, counted from the last, or 1. Check the shapes of the operands.");
  }
  return broadcast_in_dim(x, dims, mapping);
}

Hlo Emitter::slice(const Hlo& x, const Dims& starts, const Dims& limits, const Dims& strides) {
  Shape shape{x.shape.dtype, {}};
  std::string ranges;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t stride = strides.empty() ? 1 : strides[i];
    shape.dims.push_back((limits[i] - starts[i] + stride - 1) / stride);
    ranges += (i == 0 ? "" : ", ") + std::to_string(starts[i]) + ":" + std::to_string(limits[i]);
    if (stride != 1) ranges += ":" + std::to_string(stride);
  }
  if (shape == x.shape) return x;
  return write("stablehlo.slice " + x.name + " [" + ranges + "] : " + arrow({x.shape}, shape), shape);
}

Hlo Emitter::pad(const Hlo& x, const Hlo& value, const Dims& low, const Dims& high, const Dims& interior) {
  Shape shape = x.shape;
  Dims inside = interior.empty() ? Dims(low.size(), 0) : interior;
  for (size_t i = 0; i < low.size(); ++i) {
    shape.dims[i] += low[i] + high[i] + std::max<int64_t>(x.shape.dims[i] - 1, 0) * inside[i];
  }
  auto is_zero = [](const Dims& all) {
    return std::all_of(all.begin(), all.end(), [](int64_t n) { return n == 0; });
  };
  if (is_zero(low) && is_zero(high) && shape == x.shape) return x;
  return write("stablehlo.pad " + x.name + ", " + value.name + ", low = " + list(low) + ", high = " +
                   list(high) + ", interior = " + list(inside) + " : " + arrow({x.shape, value.shape}, shape),
               shape);
}

Hlo Emitter::concatenate(const std::vector<Hlo>& parts, int dimension) {
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0].shape;
  std::string names;
  std::vector<Shape> shapes;
  shape.dims[static_cast<size_t>(dimension)] = 0;
  for (const Hlo& part : parts) {
    Dims others = part.shape.dims;
    if (part.rank() == parts[0].rank()) others[static_cast<size_t>(dimension)] = parts[0].dim(dimension);
    require(Shape{part.shape.dtype, others} == parts[0].shape, "concatenation", {parts[0].shape, part.shape});
    names += part.name + ", ";
    shapes.push_back(part.shape);
    shape.dims[static_cast<size_t>(dimension)] += part.dim(dimension);
  }
  return write(
      "stablehlo.concatenate " + names + "dim = " + std::to_string(dimension) + " : " + arrow(shapes, shape),
      shape);
}

Hlo Emitter::reverse(const Hlo& x, const Dims& dimensions) {
  if (dimensions.empty()) return x;
  return write("stablehlo.reverse " + x.name + ", dims = " + list(dimensions) + " : " + to_string(x.shape),
               x.shape);
}

Hlo Emitter::unary(std::string_view instruction, const Hlo& x) {
  return write("stablehlo." + std::string(instruction) + " " + x.name + " : " + to_string(x.shape), x.shape);
}

Hlo Emitter::special(std::string_view function, const Hlo& x) {
  return write("chlo." + std::string(function) + " " + x.name + " : " + to_string(x.shape) + " -> " +
                   to_string(x.shape),
               x.shape);
}

Hlo Emitter::is_finite(const Hlo& x) {
  Shape shape{Dtype::boolean, x.shape.dims};
  return write("stablehlo.is_finite " + x.name + " : " + arrow({x.shape}, shape), shape);
}

Hlo Emitter::binary(std::string_view instruction, const Hlo& a, const Hlo& b) {
  require(a.shape == b.shape, "combination", {a.shape, b.shape});
  return write(
      "stablehlo." + std::string(instruction) + " " + a.name + ", " + b.name + " : " + to_string(a.shape),
      a.shape);
}

Hlo Emitter::compare(std::string_view direction, const Hlo& a, const Hlo& b) {
  require(a.shape == b.shape, "comparison", {a.shape, b.shape});
  Shape shape{Dtype::boolean, a.shape.dims};
  return write("stablehlo.compare " + std::string(direction) + ", " + a.name + ", " + b.name + " : " +
                   arrow({a.shape, b.shape}, shape),
               shape);
}

Hlo Emitter::select(const Hlo& condition, const Hlo& a, const Hlo& b) {
  require(a.shape == b.shape && condition.shape == Shape{Dtype::boolean, a.shape.dims}, "selection",
          {condition.shape, a.shape, b.shape});
  return write("stablehlo.select " + condition.name + ", " + a.name + ", " + b.name + " : " +
                   to_string(condition.shape) + ", " + to_string(a.shape),
               a.shape);
}

Hlo Emitter::reduce(Reduction reduction, const Hlo& x, const Dims& dimensions) {
  if (dimensions.empty()) return x;
  Hlo start = neutral(reduction, x.shape.dtype);
  Shape shape{x.shape.dtype, {}};
  for (int i = 0; i < x.rank(); ++i) {
    if (std::find(dimensions.begin(), dimensions.end(), i) == dimensions.end())
      shape.dims.push_back(x.dim(i));
  }
  return write("stablehlo.reduce(" + x.name + " init: " + start.name + ") applies stablehlo." +
                   name_of(reduction) + " across dimensions = " + list(dimensions) + " : " +
                   arrow({x.shape, start.shape}, shape),
               shape);
}

Hlo Emitter::reduce_window(Reduction reduction, const Hlo& x, const Window& window) {
  Hlo start = neutral(reduction, x.shape.dtype);
  Shape shape = x.shape;
  for (size_t i = 0; i < shape.dims.size(); ++i) {
    shape.dims[i] = (shape.dims[i] + window.low[i] + window.high[i] - window.size[i]) / window.stride[i] + 1;
  }
  return write("\"stablehlo.reduce_window\"(" + x.name + ", " + start.name + ") <{window_dimensions = " +
                   array(window.size) + ", window_strides = " + array(window.stride) + ", padding = dense<" +
                   pairs(window.low, window.high) + "> : tensor<" + std::to_string(x.rank()) + "x2xi64>}> " +
                   combiner(name_of(reduction), x.shape.dtype) + " : " + arrow({x.shape, start.shape}, shape),
               shape);
}

std::vector<Hlo> Emitter::sort(const Hlo& x, int dimension, bool descending) {
  Hlo positions = iota({Dtype::i64, x.shape.dims}, dimension);
  std::string type = to_string({x.shape.dtype, {}});
  std::string order = is_floating(x.shape.dtype) ? ", TOTALORDER" : "";
  Hlo keys = x;
  if (!order.empty()) {
    // In the total order −0 is below 0 and a negative not-a-number is least.
    keys = select(compare("EQ", x, constant(0, x.shape)), constant(0, x.shape), x);
    keys = select(compare("NE", x, x), constant(NAN, x.shape), keys);
  }
  std::string name = "%" + std::to_string(next_++);
  std::string types = to_string(x.shape) + ", " + to_string(positions.shape) + ", " + to_string(keys.shape);
  text_ += "  " + name + ":3 = \"stablehlo.sort\"(" + x.name + ", " + positions.name + ", " + keys.name +
           ") <{dimension = " + std::to_string(dimension) +
           " : i64, is_stable = true}> ({\n  ^bb0(%a: " + type + ", %b: " + type +
           ", %i: tensor<i64>, %j: tensor<i64>, %k: " + type + ", %l: " + type +
           "):\n    %c = stablehlo.compare " + (descending ? "GT" : "LT") + ", %k, %l" + order + " : (" +
           type + ", " + type + ") -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n  }) : (" + types +
           ") -> (" + types + ")\n";
  return {{this, name + "#0", x.shape}, {this, name + "#1", positions.shape}};
}

Hlo Emitter::dot(const Hlo& a, const Hlo& b, const DotDimensions& dimensions, Dtype result) {
  require(a.shape.dtype == b.shape.dtype && same_sizes(a, dimensions.left_batch, b, dimensions.right_batch) &&
              same_sizes(a, dimensions.left_contracted, b, dimensions.right_contracted),
          "product", {a.shape, b.shape});
  auto has = [](const Dims& all, int i) { return std::find(all.begin(), all.end(), i) != all.end(); };
  Shape shape{result, {}};
  for (int64_t i : dimensions.left_batch) shape.dims.push_back(a.dim(static_cast<int>(i)));
  for (int i = 0; i < a.rank(); ++i) {
    if (!has(dimensions.left_batch, i) && !has(dimensions.left_contracted, i)) shape.dims.push_back(a.dim(i));
  }
  for (int i = 0; i < b.rank(); ++i) {
    if (!has(dimensions.right_batch, i) && !has(dimensions.right_contracted, i))
      shape.dims.push_back(b.dim(i));
  }
  std::string batch;
  if (!dimensions.left_batch.empty()) {
    batch = ", batching_dims = " + list(dimensions.left_batch) + " x " + list(dimensions.right_batch);
  }
  return write("stablehlo.dot_general " + a.name + ", " + b.name + batch + ", contracting_dims = " +
                   list(dimensions.left_contracted) + " x " + list(dimensions.right_contracted) +
                   ", precision = [HIGHEST, HIGHEST] : " + arrow({a.shape, b.shape}, shape),
               shape);
}

Hlo Emitter::convolve(const Hlo& x, const Hlo& kernel, const Convolution& convolution, Dtype result) {
  require(x.shape.dtype == kernel.shape.dtype && x.rank() == kernel.rank(), "convolution",
          {x.shape, kernel.shape});
  Shape shape{result, convolution.result};
  const Window& window = convolution.window;
  return write(
      "stablehlo.convolution(" + x.name + ", " + kernel.name + ") dim_numbers = " + convolution.dimensions +
          ", window = {stride = " + list(window.stride) + ", pad = " + pairs(window.low, window.high) +
          ", lhs_dilate = " + list(window.left_dilation) + ", rhs_dilate = " + list(window.right_dilation) +
          "} {batch_group_count = " + std::to_string(convolution.batch_groups) +
          " : i64, feature_group_count = " + std::to_string(convolution.feature_groups) +
          " : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : " +
          arrow({x.shape, kernel.shape}, shape),
      shape);
}

Hlo Emitter::gather(const Hlo& x, const Hlo& indices, const IndexDimensions& dimensions) {
  Dims sizes = x.shape.dims, windows;
  for (int64_t i : dimensions.indexed) sizes[static_cast<size_t>(i)] = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (std::find(dimensions.indexed.begin(), dimensions.indexed.end(), i) == dimensions.indexed.end())
      windows.push_back(x.dim(i));
  }
  Dims collapsed = dimensions.indexed;
  std::sort(collapsed.begin(), collapsed.end());
  Shape shape{x.shape.dtype, Dims(indices.shape.dims.begin(), indices.shape.dims.end() - 1)};
  for (size_t i = 0; i < windows.size(); ++i) {
    shape.dims.insert(shape.dims.begin() + dimensions.window[i], windows[i]);
  }
  return write(
      "\"stablehlo.gather\"(" + x.name + ", " + indices.name +
          ") <{dimension_numbers = #stablehlo.gather<offset_dims = " + list(dimensions.window) +
          ", collapsed_slice_dims = " + list(collapsed) + ", start_index_map = " + list(dimensions.indexed) +
          ", index_vector_dim = " + std::to_string(indices.rank() - 1) + ">, slice_sizes = " + array(sizes) +
          ", indices_are_sorted = false}> : " + arrow({x.shape, indices.shape}, shape),
      shape);
}

Hlo Emitter::scatter(const Hlo& x, const Hlo& indices, const Hlo& updates, const IndexDimensions& dimensions,
                     const Reduction* reduction) {
  Dims inserted = dimensions.indexed;
  std::sort(inserted.begin(), inserted.end());
  std::string region =
      reduction == nullptr ? keeper(x.shape.dtype) : combiner(name_of(*reduction), x.shape.dtype);
  return write(
      "\"stablehlo.scatter\"(" + x.name + ", " + indices.name + ", " + updates.name +
          ") <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<" +
          "update_window_dims = " + list(dimensions.window) + ", inserted_window_dims = " + list(inserted) +
          ", scatter_dims_to_operand_dims = " + list(dimensions.indexed) +
          ", index_vector_dim = " + std::to_string(indices.rank() - 1) + ">, unique_indices = false}> " +
          region + " : " + arrow({x.shape, indices.shape, updates.shape}, x.shape),
      x.shape);
}

}  // namespace ivme::xla
