#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ivme::detail {

// A batch of all ranks together.
struct GlobalBatch {
  std::vector<int64_t> samples;
  int64_t real = 0;  // the first of them; the others complete the batch
};

struct Bucketing {
  int64_t size = 1;        // samples in a full global batch
  bool drop_last = false;  // leave out what does not fill one
  bool complete = false;   // else: complete it with the bucket's first samples
};

// An epoch's samples in batches of one bucket each. The order is kept: a batch comes when its last sample
// does; those that the epoch's end leaves short come last, from the first bucket to the last. `bucket_of` has
// the bucket of each sample of the dataset.
std::vector<GlobalBatch> bucket_batches(std::span<const int64_t> order, const std::vector<int>& bucket_of,
                                        const Bucketing& options);

// What one of `ranks` sees of a batch: its `size / ranks` samples, fewer or none at the end of a short one.
std::vector<int64_t> part_of_rank(const GlobalBatch& batch, int64_t size, int ranks, int rank);

}  // namespace ivme::detail
