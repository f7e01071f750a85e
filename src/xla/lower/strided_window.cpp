#include "xla/lower/strided_window.h"

#include <algorithm>

namespace ivme::xla {
namespace {

// Dimensions that move through memory, the greatest stride first.
std::vector<size_t> moving(const StridedWindow& window) {
  std::vector<size_t> dimensions;
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.sizes[i] > 1 && window.strides[i] > 0) dimensions.push_back(i);
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [&](size_t a, size_t b) { return window.strides[a] > window.strides[b]; });
  return dimensions;
}

std::optional<Box> box_from(const StridedWindow& window, const std::vector<size_t>& dimensions,
                            int64_t skipped) {
  Box box{skipped, {}, window.offset - skipped};
  int64_t span = 1;  // elements from the first to the last of what is left
  for (size_t i : dimensions) span += (window.sizes[i] - 1) * window.strides[i];
  for (size_t i : dimensions) {
    int64_t stride = window.strides[i], size = window.sizes[i];
    span -= (size - 1) * stride;
    box.levels.push_back({i, stride, box.remainder / stride, size});
    box.remainder %= stride;
    if (box.remainder + span > stride) return std::nullopt;
  }
  return box;
}

}  // namespace

bool StridedWindow::is_empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

int64_t StridedWindow::last() const {
  int64_t position = offset;
  for (size_t i = 0; i < sizes.size(); ++i) position += (sizes[i] - 1) * strides[i];
  return position;
}

std::optional<Box> find_box(const StridedWindow& window) {
  std::vector<size_t> dimensions = moving(window);
  if (auto box = box_from(window, dimensions, 0)) return box;
  return box_from(window, dimensions, window.offset);
}

}  // namespace ivme::xla
