#pragma once
#include <ATen/core/TensorBody.h>

#include <array>
#include <memory>

#include "process/random_place.h"

namespace ivme {

// Which rows of the global batch this rank has: `full` times its rank is the first; it has `rows` of them. 0:
// unknown, all ranks have equally many.
struct RowsOfRank {
  int rank = 0;
  int64_t rows = 0, full = 0;
};

// While it lives, what dropout draws on this thread is what a program of xla draws of the global batch: from
// the seed, the step, the place among the step's draws, and the element's index in the tensor of all ranks,
// whose first dimension is the rows'. Torch's generators are left as they are. Nested ones: the innermost.
class KeyedDropout {
 public:
  KeyedDropout(std::shared_ptr<RandomPlace> place, const RowsOfRank& rows);
  ~KeyedDropout();
  KeyedDropout(const KeyedDropout&) = delete;
  KeyedDropout& operator=(const KeyedDropout&) = delete;

  static KeyedDropout* current();  // of this thread; null: none
  // Fills a contiguous f32 or f64 tensor on the CPU with 1, with this probability, and 0.
  void draw(at::Tensor& numbers, double probability);

 private:
  std::array<uint32_t, 2> next_stream();
  uint64_t first_of(int64_t count) const;  // index of this rank's first element

  std::shared_ptr<RandomPlace> place_;
  RowsOfRank rows_;
  KeyedDropout* outer_;
  struct Interception;
  std::unique_ptr<Interception> interception_;
};

}  // namespace ivme
