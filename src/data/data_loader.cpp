#include "ivme/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/epoch_order.h"
#include "data/loader_core.h"
#include "ivme/error.h"
#include "xla/step.h"

namespace ivme::detail {
namespace {

bool has_varying_batches(const LoaderCore& core) {
  return core.options.batch_sampler && !core.options.batch_sampler->batch_size();
}

std::vector<int64_t> varying_share(const LoaderCore& core, int64_t num_batches) {
  return varying_batches_of_rank(num_batches, core.shard.num_processes, core.rank, core.shard.even_batches,
                                 core.shard.drop_last);
}

}  // namespace

const char* LoaderCore::sampler_name() const {
  if (!options.shuffle) return "none";
  return seed ? "seedable" : "default";
}

std::shared_ptr<LoaderCore> make_core(int64_t length, const LoaderOptions& options) {
  if (length < 0)
    throw Error(
        "data_loader was given a dataset that does not know its size. Give one whose size() returns a "
        "number.");
  if (options.batch_size < 1)
    throw Error("data_loader was asked for a batch size of " + std::to_string(options.batch_size) +
                ". It must be at least 1.");
  if (options.order && options.shuffle)
    throw Error("data_loader was given both shuffle and an order of its own. Give one of them.");
  if (options.num_samples && (!options.shuffle || *options.num_samples < 1))
    throw Error("data_loader was asked for num_samples = " + std::to_string(*options.num_samples) +
                (options.shuffle ? ". It must be at least 1."
                                 : " without shuffle. Turn shuffle on, or give an order of your own."));
  if (options.batch_sampler &&
      (options.order || options.shuffle || options.drop_last || options.batch_size != 1))
    throw Error(
        "data_loader was given a batch sampler together with batch_size, shuffle, drop_last or order. "
        "The batch sampler decides all of these: leave them out.");
  auto core = std::make_shared<LoaderCore>();
  core->length = length;
  core->options = options;
  core->shard.batch_size = options.batch_size;
  core->shard.drop_last = options.drop_last;
  if (options.batch_sampler) {
    core->shard.batch_size = options.batch_sampler->batch_size().value_or(1);
    core->shard.drop_last = options.batch_sampler->drop_last();
    if (core->shard.batch_size < 1)
      throw Error("A batch sampler says its batches have " + std::to_string(core->shard.batch_size) +
                  " samples. At least 1 is needed.");
  }
  return core;
}

std::shared_ptr<LoaderCore> share(const LoaderCore& core, const Sharing& sharing) {
  auto shared = std::make_shared<LoaderCore>(core);
  shared->active = sharing.active;
  shared->group = sharing.group;
  shared->shard.num_processes = sharing.num_processes;
  shared->shard.split_batches = sharing.split_batches;
  shared->shard.even_batches = sharing.even_batches;
  shared->rank = sharing.rank;
  shared->device = sharing.device;
  shared->tracing = sharing.tracing;
  // A short last batch would be another program.
  shared->shard.complete_on_one_process = sharing.tracing && sharing.even_batches;
  if (sharing.split_batches && has_varying_batches(core))
    throw Error(
        "split_batches was asked for with a batch sampler that has no batch_size(), so its batches cannot be "
        "split over " +
        std::to_string(sharing.num_processes) +
        " processes. Give it a batch_size(), or turn split_batches off.");
  BatchShard(shard_options(*shared, 0), sharing.rank);  // throws when the batch cannot be split
  if (core.options.shuffle) {
    if (sharing.use_seedable_sampler) {
      shared->seed = sharing.data_seed ? *sharing.data_seed
                                       : at::globalContext().defaultGenerator(at::kCPU).current_seed();
    } else if (sharing.num_processes > 1) {
      auto seed = static_cast<uint64_t>(at::empty({}, at::kLong).random_().item<int64_t>());
      shared->generator = at::detail::createCPUGenerator(seed);
    }
  }
  return shared;
}

struct EpochCursor::Pass {
  std::shared_ptr<LoaderCore> core;
  EpochOrder order;
  std::optional<BatchShard> shard;
  std::vector<int64_t> varying;  // batch numbers of this rank
  int64_t next = 0;
  bool exhausted = false;
  mutable int moved = 0;  // tensors of the batch that is being moved
  int64_t size() const { return shard ? shard->size() : static_cast<int64_t>(varying.size()); }
};

EpochCursor::EpochCursor(std::shared_ptr<LoaderCore> core) : pass_(std::make_unique<Pass>()) {
  pass_->core = std::move(core);
  LoaderCore& c = *pass_->core;
  pass_->order = draw_order(c);
  if (pass_->order.varying) {
    pass_->varying = varying_share(c, static_cast<int64_t>(pass_->order.varying->size()));
    c.real_rows = -1;
  } else {
    pass_->shard.emplace(shard_options(c, pass_->order.length), c.rank);
    c.real_rows = remainder(shard_options(c, pass_->order.length));
  }
  if (c.keep_first_order && !c.first_order.defined() && !pass_->order.varying)
    c.first_order =
        pass_->order.indices.defined() ? pass_->order.indices : at::arange(pass_->order.length, at::kLong);
  c.end = false;
  if (c.active) c.active->stack.push_back(&c);
}

EpochCursor::~EpochCursor() {
  LoaderCore& c = *pass_->core;
  if (c.tracing && std::uncaught_exceptions() == 0) {  // the loop was left by break
    try {
      xla::end_step(c.tracing);
    } catch (const std::exception&) {  // whoever reads a result meets it again
    }
  }
  c.in_hand = nullptr;
  c.end = false;
  if (!c.active) return;
  auto& stack = c.active->stack;
  if (auto found = std::find(stack.rbegin(), stack.rend(), &c); found != stack.rend())
    stack.erase(std::next(found).base());
}

bool EpochCursor::next_indices(std::vector<int64_t>& indices) {
  Pass& pass = *pass_;
  pass.moved = 0;
  if (pass.next == pass.size()) {
    if (!std::exchange(pass.exhausted, true)) close_order(*pass.core, pass.order);
    return false;
  }
  if (pass.order.varying) {
    indices = (*pass.order.varying)[pass.varying[pass.next++]];
    return true;
  }
  indices = pass.shard->positions(pass.next++);
  if (pass.order.indices.defined()) {
    const int64_t* order = pass.order.indices.const_data_ptr<int64_t>();
    for (int64_t& index : indices) index = order[index];
  }
  return true;
}

bool EpochCursor::moves_batches() const { return !pass_->core->device.is_cpu(); }

void EpochCursor::move(at::Tensor& tensor, const std::string& name) const {
  if (!tensor.defined()) return;
  tensor = tensor.to(pass_->core->device);
  ++pass_->moved;
  if (!tensor.device().is_xla()) return;
  const bool is_named = name.find_first_not_of("0123456789.") != name.npos;
  xla::adopt(tensor, pass_->core->tracing, is_named ? name : "batch tensor " + std::to_string(pass_->moved));
}

void EpochCursor::deliver(const std::vector<int64_t>& indices, bool last) {
  LoaderCore& c = *pass_->core;
  if (c.tracing) xla::end_step(c.tracing);
  c.in_hand = &indices;
  c.end = last;
  ++c.delivered;
}

void EpochCursor::finish() {
  if (pass_->core->tracing) xla::end_step(pass_->core->tracing);
  if (pass_->size() > 0) ++pass_->core->epoch;
}

int64_t batches_of(const LoaderCore& core) {
  if (has_varying_batches(core))
    return static_cast<int64_t>(
        varying_share(core, static_cast<int64_t>(core.options.batch_sampler->batches(core.epoch).size()))
            .size());
  return BatchShard(shard_options(core, epoch_length(core)), core.rank).size();
}

int64_t global_batch_of(const LoaderCore& core) {
  if (has_varying_batches(core))
    throw Error(
        "The global batch size was asked for, but the loader's batch sampler gives batches of varying size. "
        "Give it a batch_size() if they are equal.");
  return global_batch_size(core.shard);
}

int64_t remainder_of(const LoaderCore& core) {
  return has_varying_batches(core) ? -1 : remainder(shard_options(core, epoch_length(core)));
}

int64_t length_of(const LoaderCore& core) { return core.length; }
void set_epoch_of(LoaderCore& core, int64_t epoch) { core.epoch = epoch; }
bool at_end(const LoaderCore& core) { return core.end; }

}  // namespace ivme::detail
