#include <algorithm>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

constexpr Reduction add = Reduction::add;

// --- advanced indexing
// ---------------------------------------------------------------------------------------

// x[indices]: the index vectors, and which dimensions they select; those left are whole.
struct Selection {
  Hlo vectors;
  IndexDimensions dimensions;
  Dims dims;  // of what is selected
};

Hlo non_negative(const Hlo& index, int64_t size) {
  return select(index < 0.0, index + static_cast<double>(size), index);
}

// `indexed`: dimensions of x, one for each index. As in NumPy, the indices' own dims stand in the place of
// the first indexed dimension if those are neighbours, and else at the front.
Selection select_elements(const Hlo& x, const std::vector<Hlo>& indices, const Dims& indexed) {
  Dims dims;
  for (const Hlo& index : indices) dims = broadcast_dims(dims, index.dims());
  Dims column = dims;
  column.push_back(1);
  std::vector<Hlo> columns;
  for (size_t i = 0; i < indices.size(); ++i) {
    Hlo index = convert(indices[i], index_type(x.shape.count()));
    columns.push_back(x.emitter->reshape(x.emitter->broadcast(index, dims), column));
  }
  bool neighbours = indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  int64_t before = neighbours ? indexed.front() : 0, rank = static_cast<int64_t>(dims.size());
  Dims whole = without(x.dims(), indexed), selected = whole;
  selected.insert(selected.begin() + before, dims.begin(), dims.end());
  IndexDimensions dimensions{indexed, {}};
  for (int64_t i = 0; i < static_cast<int64_t>(whole.size()); ++i) {
    dimensions.window.push_back(i < before ? i : i + rank);
  }
  return {x.emitter->concatenate(columns, static_cast<int>(rank)), dimensions, selected};
}

Selection selection_of(const Call& call, const Hlo& x) {
  std::vector<Hlo> indices = call.tensors(1);
  const Dims& defined = call.argument(1).integers;
  Dims indexed;
  for (size_t i = 0; i < defined.size(); ++i) {
    if (defined[i] != 0) indexed.push_back(static_cast<int64_t>(i));
  }
  for (const Hlo& index : indices) {
    if (index.dtype() == Dtype::boolean || index.dtype() == Dtype::u8) {
      throw Error(
          "A tensor was indexed with a mask on xla. The result has as many elements as the mask has ones, "
          "which no compiled program can know. Use where(mask, a, b), or a sum weighted with the mask.");
    }
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = non_negative(indices[i], x.dim(static_cast<int>(indexed[i])));
  }
  return select_elements(x, indices, indexed);
}

Result index(const Call& call) {
  const Hlo& x = call.tensor(0);
  Selection selection = selection_of(call, x);
  return {call.emitter.gather(x, selection.vectors, selection.dimensions)};
}

// Half precisions are added up in f32.
Hlo scatter_into(const Hlo& x, const Selection& selection, const Hlo& values, const Reduction* reduction) {
  Dtype compute = reduction == nullptr ? x.dtype() : compute_type(x.dtype());
  Emitter& emitter = *x.emitter;
  return convert(emitter.scatter(convert(x, compute), selection.vectors, convert(values, compute),
                                 selection.dimensions, reduction),
                 x.dtype());
}

Result index_put(const Call& call) {  // self, indices, values, accumulate
  const Hlo& x = call.tensor(0);
  Selection selection = selection_of(call, x);
  Hlo values = call.emitter.broadcast(call.tensor(2), selection.dims);
  return {scatter_into(x, selection, values, call.boolean(3) ? &add : nullptr)};
}

// --- along one dimension
// -------------------------------------------------------------------------------------

Hlo flat(const Hlo& index) { return index.emitter->reshape(index, {index.shape.count()}); }

Result index_select(const Call& call) {
  Hlo x = call.tensor(0);
  if (x.rank() == 0) return {x};
  int64_t dimension = wrap(call.integer(1), x.rank());
  Selection selection = select_elements(x, {flat(call.tensor(2))}, {dimension});
  return {call.emitter.gather(x, selection.vectors, selection.dimensions)};
}

Result index_add(const Call& call) {  // self, dim, index, source, alpha
  const Hlo& x = call.tensor(0);
  Selection selection = select_elements(x, {flat(call.tensor(2))}, {wrap(call.integer(1), x.rank())});
  Dtype compute = compute_type(x.dtype());
  Hlo source = convert(call.tensor(3), compute);
  if (!call.is_constant(4, 1)) source = source * call.scalar(4, compute);
  Hlo sums = call.emitter.scatter(convert(x, compute), selection.vectors, source, selection.dimensions, &add);
  return {convert(sums, x.dtype())};
}

Result index_fill(const Call& call) {
  const Hlo& x = call.tensor(0);
  Selection selection = select_elements(x, {flat(call.tensor(2))}, {wrap(call.integer(1), x.rank())});
  Hlo value = call.emitter.broadcast(call.scalar(3, x.dtype()), selection.dims);
  return {scatter_into(x, selection, value, nullptr)};
}

Result index_copy(const Call& call) {
  const Hlo& x = call.tensor(0);
  Selection selection = select_elements(x, {flat(call.tensor(2))}, {wrap(call.integer(1), x.rank())});
  return {scatter_into(x, selection, call.tensor(3), nullptr)};
}

// For gather and scatter: each element of the index has its own place in the other dimensions.
Selection pointwise(const Hlo& x, const Hlo& index, int64_t dimension) {
  std::vector<Hlo> indices;
  for (int i = 0; i < x.rank(); ++i) {
    indices.push_back(i == dimension ? index : x.emitter->iota({index.dtype(), index.dims()}, i));
  }
  return select_elements(x, indices, range(0, x.rank()));
}

Hlo at_least_vector(const Hlo& x) { return x.rank() == 0 ? x.emitter->reshape(x, {1}) : x; }

Result gather(const Call& call) {  // self, dim, index
  Hlo x = at_least_vector(call.tensor(0)), index = at_least_vector(call.tensor(2));
  Selection selection = pointwise(x, index, wrap(call.integer(1), x.rank()));
  Hlo result = call.emitter.gather(x, selection.vectors, selection.dimensions);
  return {call.emitter.reshape(result, call.tensor(2).dims())};
}

Result scatter_values(const Call& call, const Hlo& source, const Reduction* reduction) {
  Hlo x = at_least_vector(call.tensor(0)), index = at_least_vector(call.tensor(2));
  Selection selection = pointwise(x, index, wrap(call.integer(1), x.rank()));
  return {call.emitter.reshape(scatter_into(x, selection, source, reduction), call.tensor(0).dims())};
}

// The part of the source that the index covers.
Hlo covered(const Call& call) {
  Hlo source = at_least_vector(call.tensor(3));
  return call.emitter.slice(source, Dims(source.dims().size(), 0), at_least_vector(call.tensor(2)).dims());
}

Result scatter_source(const Call& call) { return scatter_values(call, covered(call), nullptr); }
Result scatter_add(const Call& call) { return scatter_values(call, covered(call), &add); }
Result scatter_number(const Call& call) {
  Hlo value = call.scalar(3, call.tensor(0).dtype());
  return scatter_values(call, call.emitter.broadcast(value, at_least_vector(call.tensor(2)).dims()), nullptr);
}

Reduction reduction_of(const std::string& name) {
  if (name == "sum" || name == "add") return Reduction::add;
  if (name == "prod" || name == "multiply") return Reduction::multiply;
  if (name == "amax") return Reduction::maximum;
  if (name == "amin") return Reduction::minimum;
  throw Error("A scatter with reduction '" + name +
              "' was asked for on xla. There are sum, prod, amax and amin. "
              "Scatter sums and counts apart for a mean.");
}

Result scatter_reduced(const Call& call) {  // self, dim, index, source, reduce
  Reduction reduction = reduction_of(call.text(4));
  return scatter_values(call, covered(call), &reduction);
}

Result scatter_reduce_two(const Call& call) {  // self, dim, index, source, reduce, include_self
  Reduction reduction = reduction_of(call.text(4));
  if (call.boolean(5)) return scatter_values(call, covered(call), &reduction);
  const Hlo& x = call.tensor(0);
  Hlo index = at_least_vector(call.tensor(2)), whole = at_least_vector(x);
  Selection selection = pointwise(whole, index, wrap(call.integer(1), x.rank()));
  Hlo start = call.emitter.broadcast(call.emitter.neutral(reduction, x.dtype()), index.dims());
  Hlo cleared = scatter_into(whole, selection, start, nullptr);
  return {call.emitter.reshape(scatter_into(cleared, selection, covered(call), &reduction), x.dims())};
}

// --- embedding
// -----------------------------------------------------------------------------------------------

Result embedding(const Call& call) {
  const Hlo& weight = call.tensor(0);
  Selection selection = select_elements(weight, {call.tensor(1)}, {0});
  return {call.emitter.gather(weight, selection.vectors, selection.dimensions)};
}

// gradient, indices, number of rows, padding index, scale by frequency
Result embedding_backward(const Call& call) {
  const Hlo& gradient = call.tensor(0);
  Dtype compute = compute_type(gradient.dtype());
  int64_t rows = call.integer(2), width = gradient.dim(-1), count = call.tensor(1).shape.count();
  Hlo index = flat(call.tensor(1)), column = call.emitter.reshape(index, {count, 1});
  Hlo updates = call.emitter.reshape(convert(gradient, compute), {count, width});
  if (call.integer(3) >= 0) updates = select(column != static_cast<double>(call.integer(3)), updates, 0);
  Hlo zeros = call.emitter.constant(0, {compute, {rows, width}});
  Selection selection = select_elements(zeros, {index}, {0});
  Hlo sums = call.emitter.scatter(zeros, selection.vectors, updates, selection.dimensions, &add);
  if (call.boolean(4)) {
    Hlo none = call.emitter.constant(0, {compute, {rows}}),
        one = call.emitter.constant(1, {compute, {count}});
    Hlo frequency = call.emitter.scatter(none, selection.vectors, one, {{0}, {}}, &add);
    sums = sums / call.emitter.reshape(maximum(frequency, 1), {rows, 1});
  }
  return {convert(sums, gradient.dtype())};
}

}  // namespace

Rows indexing_rows() {
  return {
      {"aten::index.Tensor", index},
      {"aten::_unsafe_index.Tensor", index},
      {"aten::index_put", index_put},
      {"aten::_index_put_impl", index_put},
      {"aten::index_select", index_select},
      {"aten::index_add", index_add, varying<4>},
      {"aten::index_copy", index_copy},
      {"aten::index_fill.int_Scalar", index_fill, varying<3>},
      {"aten::index_fill.int_Tensor", index_fill},
      {"aten::gather", gather},
      {"aten::scatter.src", scatter_source},
      {"aten::scatter.value", scatter_number, varying<3>},
      {"aten::scatter.reduce", scatter_reduced},
      {"aten::scatter_add", scatter_add},
      {"aten::scatter_reduce.two", scatter_reduce_two},
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
  };
}

}  // namespace ivme::xla
