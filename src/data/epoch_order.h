#pragma once
#include "data/bucket_batches.h"
#include "data/loader_core.h"

namespace ivme::detail {

// The order of one epoch, before it is dealt to the ranks.
struct EpochOrder {
  int64_t length = 0;
  at::Tensor indices;  // int64 [length] on the CPU; undefined: 0, 1, 2, ...
  std::optional<std::vector<std::vector<int64_t>>> varying;  // instead: batches of no fixed size
  std::optional<std::vector<GlobalBatch>> bucketed;          // indices, in batches of one bucket
};

// Draws the order as Python does: first the number that PyTorch's DataLoader draws whether it needs one or
// not (torch's CPU generator), then the permutation: from seed + epoch; or, default sampler, on one rank from
// a generator that is seeded by the CPU generator, on several from the common one. Collective in that last
// case.
EpochOrder draw_order(LoaderCore& core);

// Deals an order out to buckets. Short batches are completed if `complete` says so.
void deal_to_buckets(const LoaderCore& core, EpochOrder& order, bool complete);
// How many batches of the next epoch this rank sees.
int64_t bucketed_size(const LoaderCore& core);

// The default sampler's generator draws one more permutation at the end of an epoch of whole ones and drops
// it.
void close_order(LoaderCore& core, const EpochOrder& order);

// Shard options for an epoch of `length` samples.
ShardOptions shard_options(const LoaderCore& core, int64_t length);

// Samples in the next epoch: of the dataset, or as many as the loader's own order or batch sampler gives.
int64_t epoch_length(const LoaderCore& core);

}  // namespace ivme::detail
