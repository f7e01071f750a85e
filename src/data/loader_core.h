#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_shard.h"
#include "data/starvation.h"
#include "ivme/data_loader.h"
#include "process/group.h"
#include "process/random_place.h"

namespace ivme::xla {
struct Context;
}

namespace ivme::detail {

// The loaders that a loop is inside of, innermost last: what gather_for_metrics and accumulate ask for the
// epoch's end.
struct ActiveLoaders {
  std::vector<const LoaderCore*> stack;
  const LoaderCore* top() const { return stack.empty() ? nullptr : stack.back(); }
};

// What all handles of one loader share.
struct LoaderCore {
  int64_t length = 0;  // samples in the dataset
  LoaderOptions options;
  int64_t epoch = 0;  // passes that ran to their end, or what set_epoch said

  // Set by prepare; as they stand, a loader of one process that nobody watches.
  std::shared_ptr<ActiveLoaders> active;
  std::shared_ptr<Group> group;  // null for one rank
  ShardOptions shard;            // but for its length, which is the epoch's
  int rank = 0;
  c10::Device device = c10::Device(c10::kCPU);
  std::shared_ptr<xla::Context> tracing;  // on xla: what each batch belongs to, and what ends a step
  std::shared_ptr<RandomPlace> random;    // elsewhere, for dropout that is keyed by rows; or null
  bool one_shape = false;                 // on xla, unless the loop moves its batches itself
  bool may_pad = true;
  std::function<bool()> trains_batch_norm = {};  // a prepared model with batch norm is in training
  std::optional<uint64_t> seed;                  // seedable sampler: order drawn from seed + epoch
  std::optional<at::Generator> generator;  // default sampler on several ranks: one generator for all epochs

  // Of the pass that runs.
  bool end = false;                    // the batch in hand is the last
  const BatchPlan* in_hand = nullptr;  // the batch in hand, on this rank
  mutable bool gathered = false;       // gather_for_metrics has cut its padding
  Starvation starvation = {};          // over all passes, on xla
  int64_t delivered = 0;               // counts batches over all passes: tells one from the next
  bool keep_first_order = false;       // the run record wants it
  at::Tensor first_order;              // int64 [samples]: first epoch, before it is dealt out

  const char* sampler_name() const;  // "seedable", "default" or "none", as the run record has it
};

// A copy of `core` for this rank: its share of each epoch.
struct Sharing {
  std::shared_ptr<ActiveLoaders> active = {};
  std::shared_ptr<Group> group = {};
  int num_processes = 1;
  int rank = 0;
  bool split_batches = false;
  bool even_batches = true;
  bool may_pad = true;
  bool use_seedable_sampler = true;
  std::optional<uint64_t> data_seed = {};
  c10::Device device = c10::Device(c10::kCPU);
  std::shared_ptr<xla::Context> tracing = {};
  std::shared_ptr<RandomPlace> random = {};
  std::function<bool()> trains_batch_norm = {};
};
// Throws Error when the batch size cannot be split over the ranks. With the default sampler on several ranks
// it draws one number from torch's CPU generator, as Accelerate does.
std::shared_ptr<LoaderCore> share(const LoaderCore& core, const Sharing& sharing);

// Samples of this rank in a full batch.
int64_t full_rows(const LoaderCore& core);

// Throws Error when the batch in hand was padded in its data, and nothing in this iteration has used the mask
// that tells.
void check_padding(const LoaderCore& core);

}  // namespace ivme::detail
