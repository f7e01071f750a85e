#include "ivme/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "data/epoch_order.h"
#include "data/loader_core.h"
#include "data/prefetch.h"
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

void end_step_of(const LoaderCore& core) {
  // A step that Accelerator::end_step has ended is not ended twice.
  if (core.random && !core.random->ended) core.random->end_step();
  if (core.tracing) xla::end_step(core.tracing);
}

at::Tensor generator_state() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

at::Tensor make_mask(const LoaderCore& core, const BatchPlan& plan) {
  if (!core.device.is_xla())  // nothing is padded
    return at::ones({plan.rows}, at::TensorOptions(at::kBool).device(core.device));
  at::Tensor mask = at::ones({plan.rows}, at::kBool);
  const auto samples = static_cast<int64_t>(plan.indices.size());
  mask.narrow(0, samples, plan.rows - samples).zero_();
  mask = mask.to(core.device);
  xla::adopt(mask, core.tracing, "mask");
  return mask;
}

void tell_of_completion(int64_t real, int64_t rows) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  std::fprintf(
      stderr,
      "ivme: a batch of %lld samples was completed to %lld from the epoch's start: padding would count "
      "in the statistics of batch normalisation, and a short batch would be another program. drop_last "
      "leaves it out; said once.\n",
      static_cast<long long>(real), static_cast<long long>(rows));
}

}  // namespace

int64_t full_rows(const LoaderCore& core) {
  return core.shard.split_batches ? core.shard.batch_size / core.shard.num_processes : core.shard.batch_size;
}

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
      (options.order || options.shuffle || options.drop_last || options.batch_size != 1 || options.buckets))
    throw Error(
        "data_loader was given a batch sampler together with batch_size, shuffle, drop_last, order or "
        "buckets. The batch sampler decides all of these: leave them out.");
  if (options.buckets && options.num_samples)
    throw Error(
        "data_loader was given buckets together with num_samples. How many batches there are would depend on "
        "what is drawn: leave num_samples out.");
  if (options.buckets && static_cast<int64_t>(options.buckets->of_sample->size()) != length)
    throw Error("data_loader was given buckets for " + std::to_string(options.buckets->of_sample->size()) +
                " samples and a dataset of " + std::to_string(length) +
                ". Give length_buckets the lengths of this dataset's samples.");
  if (options.prefetch.value_or(0) < 0)
    throw Error("data_loader was asked to prefetch " + std::to_string(*options.prefetch) +
                " batches. Give 0 or more.");
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
  shared->random = sharing.random;
  shared->trains_batch_norm = sharing.trains_batch_norm;
  shared->may_pad = sharing.may_pad && sharing.device.is_xla();
  shared->one_shape = sharing.tracing != nullptr;
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

void check_padding(const LoaderCore& core) {
  const BatchPlan* plan = core.in_hand;
  if (!plan || !plan->is_padded() || !plan->needs_mask || core.gathered) return;
  if (plan->mask.defined() && (!plan->mask.device().is_xla() || xla::was_read(plan->mask))) return;
  throw Error(
      "A batch of " + std::to_string(plan->indices.size()) + " samples was padded to " +
      std::to_string(plan->rows) +
      " rows, as another shape would be another program on xla. Its targets are no classes that cross "
      "entropy would leave out, and nothing has used its mask, so the padding would count. Average "
      "with ivme::masked_mean(loss_of_each_sample, loader.mask()); or leave the batch out "
      "(drop_last = true), or complete it from the epoch's start (sharing.pad_last_batch = false).");
}

struct EpochCursor::Pass {
  std::shared_ptr<LoaderCore> core;
  EpochOrder order;
  std::optional<BatchShard> shard;
  std::vector<int64_t> numbers;  // of this rank's batches, where the order has batches
  int64_t real_at_end = -1;
  bool pads = false;
  int64_t next = 0;
  bool closed = false;
  at::Tensor generator_state;       // before the first batch
  mutable int moved = 0;            // tensors of the batch that is being moved
  mutable bool were_there = false;  // tensors of a batch on xla before it was moved

  int64_t size() const { return shard ? shard->size() : static_cast<int64_t>(numbers.size()); }
  void open();
  void open_buckets(bool complete);
  void fill(BatchPlan& plan) const;
  void close();
};

// By the loop's thread, when the last batch comes, however far ahead batches are made.
void EpochCursor::Pass::close() {
  if (!std::exchange(closed, true)) close_order(*core, order);
}

void EpochCursor::Pass::open_buckets(bool complete) {
  const LoaderCore& c = *core;
  deal_to_buckets(c, order, complete);
  for (size_t i = 0; i < order.bucketed->size(); ++i) {
    const GlobalBatch& batch = (*order.bucketed)[i];
    if (part_of_rank(batch, global_batch_size(c.shard), c.shard.num_processes, c.rank).empty()) continue;
    numbers.push_back(static_cast<int64_t>(i));
    const auto rows = static_cast<int64_t>(batch.samples.size());
    if (c.shard.num_processes == 1 && c.may_pad && batch.real < rows) tell_of_completion(batch.real, rows);
  }
}

void EpochCursor::Pass::open() {
  const LoaderCore& c = *core;
  const LastBatch last = last_batch({.one_shape = c.one_shape,
                                     .workers = c.shard.num_processes,
                                     .even_batches = c.shard.even_batches,
                                     .may_pad = c.may_pad,
                                     .batch_norm_in_training = c.trains_batch_norm && c.trains_batch_norm()});
  pads = last == LastBatch::padded && !order.varying;
  if (order.varying) {
    numbers = varying_share(c, static_cast<int64_t>(order.varying->size()));
  } else if (c.options.buckets) {
    open_buckets(last == LastBatch::completed);
  } else {
    ShardOptions options = shard_options(c, order.length);
    options.complete_on_one_process = last == LastBatch::completed;
    options.even_batches = options.even_batches || options.complete_on_one_process;
    shard.emplace(options, c.rank);
    real_at_end = remainder(options);
    if (c.shard.num_processes == 1 && options.complete_on_one_process && c.may_pad && real_at_end > 0)
      tell_of_completion(real_at_end, full_rows(c));
  }
}

void EpochCursor::Pass::fill(BatchPlan& plan) const {
  if (order.bucketed) {
    const LoaderCore& c = *core;
    const GlobalBatch& batch = (*order.bucketed)[numbers[next]];
    const int64_t size = global_batch_size(c.shard);
    plan.indices = part_of_rank(batch, size, c.shard.num_processes, c.rank);
    if (batch.real < size) plan.real = batch.real;
  } else if (order.varying) {
    plan.indices = (*order.varying)[numbers[next]];
  } else {
    plan.indices = shard->positions(next);
    if (plan.last) plan.real = real_at_end;
    if (!order.indices.defined()) return;
    const int64_t* all = order.indices.const_data_ptr<int64_t>();
    for (int64_t& index : plan.indices) index = all[index];
  }
}

EpochCursor::EpochCursor(std::shared_ptr<LoaderCore> core) : pass_(std::make_unique<Pass>()) {
  pass_->core = std::move(core);
  LoaderCore& c = *pass_->core;
  pass_->order = draw_order(c);
  pass_->open();
  if (c.keep_first_order && !c.first_order.defined() && !pass_->order.varying)
    c.first_order =
        pass_->order.indices.defined() ? pass_->order.indices : at::arange(pass_->order.length, at::kLong);
  pass_->generator_state = generator_state();
  c.end = false;
  c.starvation.pass_begins();
  if (c.active) c.active->stack.push_back(&c);
}

EpochCursor::~EpochCursor() {
  LoaderCore& c = *pass_->core;
  if (std::uncaught_exceptions() == 0) {  // the loop was left by break
    try {
      end_step_of(c);
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

bool EpochCursor::next(BatchPlan& plan) {
  Pass& pass = *pass_;
  pass.moved = 0;
  if (pass.next == pass.size()) return false;
  plan.last = pass.next + 1 == pass.size();
  pass.fill(plan);
  ++pass.next;
  plan.rows = static_cast<int64_t>(plan.indices.size());
  if (pass.pads) plan.rows = std::max(plan.rows, full_rows(*pass.core));
  return true;
}

bool EpochCursor::moves_batches() const { return !pass_->core->device.is_cpu(); }

void EpochCursor::move(at::Tensor& tensor, const std::string& name) const {
  if (!tensor.defined()) return;
  pass_->were_there = pass_->were_there || tensor.device().is_xla();
  tensor = tensor.to(pass_->core->device);
  ++pass_->moved;
  if (!tensor.device().is_xla()) return;
  const bool is_named = name.find_first_not_of("0123456789.") != name.npos;
  xla::adopt(tensor, pass_->core->tracing, is_named ? name : "batch tensor " + std::to_string(pass_->moved));
}

at::Tensor EpochCursor::mask(const BatchPlan& plan) const { return make_mask(*pass_->core, plan); }

std::shared_ptr<Prefetch> EpochCursor::in_background(std::function<std::shared_ptr<void>()> make) const {
  const int64_t depth = pass_->core->options.prefetch.value_or(pass_->core->one_shape ? 1 : 0);
  // What is computed on xla is recorded, by one thread at a time.
  if (depth == 0 || pass_->were_there || !at::equal(generator_state(), pass_->generator_state))
    return nullptr;
  return std::make_shared<Prefetch>(
      [make = std::move(make), state = at::ThreadLocalState()]() {
        at::ThreadLocalStateGuard as_the_loop(state);
        return make();
      },
      static_cast<size_t>(depth));
}

void EpochCursor::leave() {
  LoaderCore& c = *pass_->core;
  check_padding(c);
  c.in_hand = nullptr;
}

void EpochCursor::end_step() { end_step_of(*pass_->core); }

void EpochCursor::note_waiting(std::chrono::steady_clock::time_point since) {
  LoaderCore& c = *pass_->core;
  if (!c.tracing) return;
  if (auto said = c.starvation.batch_came(since, std::chrono::steady_clock::now()))
    std::fputs(said->c_str(), stderr);
}

void EpochCursor::deliver(const BatchPlan& plan) {
  LoaderCore& c = *pass_->core;
  if (c.random) c.random->begin_step();
  c.in_hand = &plan;
  c.gathered = false;
  c.end = plan.last;
  if (plan.last) pass_->close();
  ++c.delivered;
}

void EpochCursor::finish() {
  pass_->close();
  if (pass_->size() > 0) ++pass_->core->epoch;
}

std::shared_ptr<void> take(Prefetch& prefetch) { return prefetch.take(); }

at::Tensor mask_in_hand(LoaderCore& core) {
  if (!core.in_hand)
    throw Error(
        "The mask of a loader's batch was asked for, but no batch is in hand. Ask inside a loop over the "
        "loader.");
  if (!core.in_hand->mask.defined()) core.in_hand->mask = make_mask(core, *core.in_hand);
  return core.in_hand->mask;
}

int64_t samples_in_hand(const LoaderCore& core) {
  if (!core.in_hand)
    throw Error(
        "The samples of a loader's batch were asked for, but no batch is in hand. Ask inside a loop over the "
        "loader.");
  return static_cast<int64_t>(core.in_hand->indices.size());
}

int64_t batches_of(const LoaderCore& core) {
  if (core.options.buckets) return bucketed_size(core);
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
  return has_varying_batches(core) || core.options.buckets
             ? -1
             : remainder(shard_options(core, epoch_length(core)));
}

int64_t length_of(const LoaderCore& core) { return core.length; }
void set_epoch_of(LoaderCore& core, int64_t epoch) { core.epoch = epoch; }
bool at_end(const LoaderCore& core) { return core.end; }

}  // namespace ivme::detail
