#include "data/bucket_batches.h"

#include <algorithm>

namespace ivme::detail {
namespace {

struct Bucket {
  std::vector<int64_t> open;   // samples of the batch that is being filled
  std::vector<int64_t> first;  // of the epoch, at most a batch
};

}  // namespace

std::vector<GlobalBatch> bucket_batches(std::span<const int64_t> order, const std::vector<int>& bucket_of,
                                        const Bucketing& options) {
  const auto size = static_cast<size_t>(options.size);
  std::vector<Bucket> buckets;
  std::vector<GlobalBatch> batches;
  for (int64_t sample : order) {
    const auto number = static_cast<size_t>(bucket_of[static_cast<size_t>(sample)]);
    if (buckets.size() <= number) buckets.resize(number + 1);
    Bucket& bucket = buckets[number];
    bucket.open.push_back(sample);
    if (bucket.first.size() < size) bucket.first.push_back(sample);
    if (bucket.open.size() < size) continue;
    batches.push_back({std::move(bucket.open), options.size});
    bucket.open.clear();
  }
  if (options.drop_last) return batches;
  for (Bucket& bucket : buckets) {
    if (bucket.open.empty()) continue;
    GlobalBatch batch{std::move(bucket.open), 0};
    batch.real = static_cast<int64_t>(batch.samples.size());
    if (options.complete)
      for (size_t i = 0; batch.samples.size() < size; ++i)
        batch.samples.push_back(bucket.first[i % bucket.first.size()]);
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<int64_t> part_of_rank(const GlobalBatch& batch, int64_t size, int ranks, int rank) {
  const int64_t width = size / ranks;
  const auto there = static_cast<int64_t>(batch.samples.size());
  const int64_t begin = std::min(rank * width, there), end = std::min(begin + width, there);
  return {batch.samples.begin() + begin, batch.samples.begin() + end};
}

}  // namespace ivme::detail
