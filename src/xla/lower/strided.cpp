#include <algorithm>

#include "ivme/error.h"
#include "xla/lower/formula.h"
#include "xla/lower/rows.h"
#include "xla/lower/strided_window.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

StridedWindow window_of(const Call& call, int sizes, int64_t memory) {
  StridedWindow window{call.integers(sizes), call.integers(sizes + 1), call.integer(sizes + 2)};
  bool fits = window.sizes.size() == window.strides.size() && window.offset >= 0;
  for (int64_t stride : window.strides) fits = fits && stride >= 0;
  if (!fits || (!window.is_empty() && window.last() >= memory)) {
    throw Error("A strided view of memory of " + std::to_string(memory) +
                " elements was asked for on xla, which reaches beyond it or runs backwards. "
                "Check sizes, strides and offset of as_strided.");
  }
  return window;
}

Hlo pad_last(const Hlo& x, int64_t amount) {
  Dims low(x.dims().size(), 0), high = low;
  high.back() = amount;
  return x.emitter->pad(x, x.emitter->constant(0, {x.dtype(), {}}), low, high);
}

// Memory, split block by block; what the last blocks lack is padded.
struct Split {
  Hlo array;
  Dims padding;  // of each level
};
Split split(const Hlo& memory, const Box& box) {
  Split result{memory, {}};
  for (const Box::Level& level : box.levels) {
    Dims dims = result.array.dims();
    int64_t blocks = (dims.back() + level.stride - 1) / level.stride;
    result.padding.push_back(blocks * level.stride - dims.back());
    result.array = pad_last(result.array, result.padding.back());
    dims.back() = blocks;
    dims.push_back(level.stride);
    result.array = memory.emitter->reshape(result.array, dims);
  }
  return result;
}

Hlo merge(Hlo array, const Dims& padding) {
  for (size_t i = padding.size(); i-- > 0;) {
    Dims dims = array.dims();
    int64_t last = dims.back();
    dims.pop_back();
    dims.back() *= last;
    array = array.emitter->reshape(array, dims);
    array = slice_dim(array, array.rank() - 1, 0, dims.back() - padding[i]);
  }
  return array;
}

Dims starts_of(const Box& box) {
  Dims starts;
  for (const Box::Level& level : box.levels) starts.push_back(level.start);
  starts.push_back(box.remainder);
  return starts;
}
Dims box_dims(const Box& box) {
  Dims sizes;
  for (const Box::Level& level : box.levels) sizes.push_back(level.size);
  sizes.push_back(1);
  return sizes;
}

// Positions of the levels in the order of the window's dimensions.
Dims window_order(const Box& box) {
  Dims order = range(0, static_cast<int>(box.levels.size()));
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return box.levels[static_cast<size_t>(a)].dimension < box.levels[static_cast<size_t>(b)].dimension;
  });
  return order;
}

// Where each element of the window stands in memory: of the window's dims, with a last dimension of 1.
Hlo positions_of(Emitter& emitter, const StridedWindow& window) {
  Shape shape{index_type(window.last()), window.sizes};
  shape.dims.push_back(1);
  Hlo positions = emitter.constant(window.offset, shape);
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.sizes[i] == 1 || window.strides[i] == 0) continue;
    positions = positions + emitter.iota(shape, static_cast<int>(i)) * static_cast<double>(window.strides[i]);
  }
  return positions;
}

Hlo read_box(const Hlo& memory, const StridedWindow& window, const Box& box) {
  Emitter& emitter = *memory.emitter;
  Hlo array = split(slice_dim(memory, 0, box.skipped, memory.dim(0)), box).array;
  Dims starts = starts_of(box), sizes = box_dims(box), limits = starts;
  for (size_t i = 0; i < limits.size(); ++i) limits[i] += sizes[i];
  array = emitter.slice(array, starts, limits);
  sizes.pop_back();
  Dims order = window_order(box), mapping;
  for (int64_t level : order)
    mapping.push_back(static_cast<int64_t>(box.levels[static_cast<size_t>(level)].dimension));
  array = emitter.transpose(emitter.reshape(array, sizes), order);
  return emitter.broadcast_in_dim(array, window.sizes, mapping);
}

Result as_strided(const Call& call) {
  const Hlo& base = call.tensor(0);
  int64_t count = base.shape.count();
  StridedWindow window = window_of(call, 1, count);
  if (window.is_empty()) return {call.emitter.constant(0, {base.dtype(), window.sizes})};
  Hlo memory = call.emitter.reshape(base, {count});
  if (auto box = find_box(window)) return {read_box(memory, window, *box)};
  return {call.emitter.gather(memory, positions_of(call.emitter, window), {{0}, {}})};
}

// Of elements that share a place in memory because they do not move, the last counts.
Hlo drop_still(Hlo value, const StridedWindow& window) {
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.strides[i] == 0) {
      value = slice_dim(value, static_cast<int64_t>(i), window.sizes[i] - 1, window.sizes[i]);
    }
  }
  return value;
}

Hlo write_box(const Hlo& memory, const Hlo& value, const StridedWindow& window, const Box& box) {
  Emitter& emitter = *memory.emitter;
  Split parts = split(slice_dim(memory, 0, box.skipped, memory.dim(0)), box);
  Dims sizes = box_dims(box), order = window_order(box), dims, back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    dims.push_back(sizes[static_cast<size_t>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  Hlo update = emitter.reshape(drop_still(value, window), dims);
  update = emitter.reshape(emitter.transpose(update, back), sizes);
  Hlo written = merge(emitter.update_slice(parts.array, update, starts_of(box)), parts.padding);
  if (box.skipped == 0) return written;
  return emitter.concatenate({slice_dim(memory, 0, 0, box.skipped), written}, 0);
}

Result as_strided_scatter(const Call& call) {
  const Hlo& base = call.tensor(0);
  int64_t count = base.shape.count();
  StridedWindow window = window_of(call, 2, count);
  if (window.is_empty()) return {base};
  Hlo memory = call.emitter.reshape(base, {count});
  Hlo value = call.emitter.broadcast(convert(call.tensor(1), base.dtype()), window.sizes);
  if (auto box = find_box(window))
    return {call.emitter.reshape(write_box(memory, value, window, *box), base.dims())};
  value = drop_still(value, window);
  StridedWindow moving = window;
  moving.sizes = value.dims();
  Hlo written = call.emitter.scatter(memory, positions_of(call.emitter, moving), value, {{0}, {}}, nullptr);
  return {call.emitter.reshape(written, base.dims())};
}

}  // namespace

Rows strided_rows() {
  return {
      {"ivme::as_strided", as_strided},                  // base; sizes, strides, offset
      {"ivme::as_strided_scatter", as_strided_scatter},  // base, value; sizes, strides, offset
  };
}

}  // namespace ivme::xla
