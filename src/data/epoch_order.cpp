#include "data/epoch_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randperm.h>

#include "ivme/error.h"
#include "process/collectives.h"

namespace ivme::detail {
namespace {

int64_t draw_int64() { return at::empty({}, at::kLong).random_().item<int64_t>(); }

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong)
      .clone();
}

std::vector<int64_t> flatten(const std::vector<std::vector<int64_t>>& batches, int64_t batch_size) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < batches.size(); ++i) {
    int64_t size = static_cast<int64_t>(batches[i].size());
    if (size != batch_size && (i + 1 < batches.size() || size > batch_size))
      throw Error("A batch sampler says its batches have " + std::to_string(batch_size) +
                  " samples, but batch " + std::to_string(i) + " has " + std::to_string(size) +
                  ". Leave batch_size() empty for batches of varying size.");
    all.insert(all.end(), batches[i].begin(), batches[i].end());
  }
  return all;
}

void share_generator_state(LoaderCore& core) {
  std::lock_guard lock(core.generator->mutex());
  at::Tensor state = core.generator->get_state();
  broadcast(*core.group, state);
  core.generator->set_state(state);
}

at::Generator generator_of_epoch(LoaderCore& core) {
  if (core.seed) return at::detail::createCPUGenerator(*core.seed + core.epoch);
  if (core.generator) return *core.generator;
  return at::detail::createCPUGenerator(static_cast<uint64_t>(draw_int64()));
}

int64_t shuffled_length(const LoaderCore& core) {
  return core.length == 0 ? 0 : core.options.num_samples.value_or(core.length);
}

at::Tensor draw_shuffled(LoaderCore& core) {
  at::Generator generator = generator_of_epoch(core);
  int64_t wanted = shuffled_length(core);
  std::vector<at::Tensor> rounds = {at::randperm(core.length, generator, at::kLong)};
  for (int64_t drawn = core.length; drawn < wanted; drawn += core.length)
    rounds.push_back(at::randperm(core.length, generator, at::kLong));
  return at::cat(rounds).narrow(0, 0, wanted);
}

// An index that the dataset does not have would be read all the same.
void check_indices(const LoaderCore& core, at::ArrayRef<int64_t> indices) {
  for (int64_t index : indices)
    if (index < 0 || index >= core.length)
      throw Error("The loader's order names sample " + std::to_string(index) + ", but the dataset has " +
                  std::to_string(core.length) + ". Give indices from 0 to size() - 1.");
}

}  // namespace

EpochOrder draw_order(LoaderCore& core) {
  const LoaderOptions& options = core.options;
  if (core.generator) share_generator_state(core);
  draw_int64();
  EpochOrder order;
  if (options.batch_sampler) {
    auto batches = options.batch_sampler->batches(core.epoch);
    if (auto size = options.batch_sampler->batch_size()) {
      order.indices = to_tensor(flatten(batches, *size));
    } else {
      for (const auto& batch : batches) {
        check_indices(core, batch);
        order.length += static_cast<int64_t>(batch.size());
      }
      order.varying = std::move(batches);
      return order;
    }
  } else if (options.order) {
    order.indices = to_tensor(options.order(core.epoch));
  } else if (options.shuffle) {
    order.indices = draw_shuffled(core);
  }
  if (order.indices.defined() && !options.shuffle)
    check_indices(core,
                  {order.indices.const_data_ptr<int64_t>(), static_cast<size_t>(order.indices.numel())});
  order.length = order.indices.defined() ? order.indices.numel() : core.length;
  return order;
}

void deal_to_buckets(const LoaderCore& core, EpochOrder& order, bool complete) {
  at::Tensor all = order.indices.defined() ? order.indices : at::arange(order.length, at::kLong);
  const std::span<const int64_t> indices(all.const_data_ptr<int64_t>(), static_cast<size_t>(all.numel()));
  order.bucketed = bucket_batches(
      indices, *core.options.buckets->of_sample,
      {.size = global_batch_size(core.shard), .drop_last = core.shard.drop_last, .complete = complete});
  std::vector<int64_t> dealt;
  for (const GlobalBatch& batch : *order.bucketed)
    dealt.insert(dealt.end(), batch.samples.begin(), batch.samples.begin() + batch.real);
  order.indices = to_tensor(dealt);
}

int64_t bucketed_size(const LoaderCore& core) {
  EpochOrder order;
  if (core.options.order) order.indices = to_tensor(core.options.order(core.epoch));
  order.length = core.length;
  deal_to_buckets(core, order, core.shard.even_batches && core.shard.num_processes > 1);
  int64_t size = 0;
  for (const GlobalBatch& batch : *order.bucketed)
    size += !part_of_rank(batch, global_batch_size(core.shard), core.shard.num_processes, core.rank).empty();
  return size;
}

void close_order(LoaderCore& core, const EpochOrder& order) {
  if (core.generator && order.length > 0 && order.length % core.length == 0)
    at::randperm(core.length, core.generator, at::kLong);
}

ShardOptions shard_options(const LoaderCore& core, int64_t length) {
  ShardOptions options = core.shard;
  options.length = length;
  return options;
}

int64_t epoch_length(const LoaderCore& core) {
  if (core.options.order) return static_cast<int64_t>(core.options.order(core.epoch).size());
  if (core.options.shuffle) return shuffled_length(core);
  if (!core.options.batch_sampler) return core.length;
  int64_t length = 0;
  for (const auto& batch : core.options.batch_sampler->batches(core.epoch))
    length += static_cast<int64_t>(batch.size());
  return length;
}

}  // namespace ivme::detail
