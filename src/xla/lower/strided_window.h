#pragma once
#include <optional>

#include "xla/lower/emitter.h"

namespace ivme::xla {

// A strided window over row-major memory of `count` elements: element i of the window is memory[offset + Σ
// i·strides].
struct StridedWindow {
  Dims sizes, strides;  // strides ≥ 0
  int64_t offset = 0;

  bool is_empty() const;
  int64_t last() const;  // the greatest position in memory; the window must not be empty
};

// The window as a box: memory, split into blocks of the greatest stride, those into blocks of the next, …, is
// an array of which the window is a slice with its dimensions in another order.
struct Box {
  struct Level {
    size_t dimension;  // of the window
    int64_t stride, start, size;
  };
  int64_t skipped = 0;  // elements of memory before the array
  std::vector<Level> levels;
  int64_t remainder = 0;  // the window's place within the last blocks
};

// Nothing when the window's elements overlap or interleave in a way that no array shows.
std::optional<Box> find_box(const StridedWindow& window);

}  // namespace ivme::xla
