#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "ivme/collate.h"
#include "ivme/sequences.h"
#include "ivme/tensors.h"

namespace ivme {

// Whole batches of sample indices for an epoch, in order, before they are dealt to the ranks.
class BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  virtual std::vector<std::vector<int64_t>> batches(int64_t epoch) = 0;
  // Samples per batch when every batch but the last has as many; without it the sizes may vary.
  virtual std::optional<int64_t> batch_size() const { return std::nullopt; }
  virtual bool drop_last() const { return false; }
};

struct LoaderOptions {
  int64_t batch_size = 1;  // samples per rank and batch (per global batch with split_batches)
  bool shuffle = false;
  bool drop_last = false;
  // With shuffle: samples in an epoch, when not as many as the dataset has. More go round again, in another
  // order.
  std::optional<int64_t> num_samples = {};
  // Instead of shuffle: the sample indices of an epoch, in order. Must give the same on every rank.
  std::function<std::vector<int64_t>(int64_t epoch)> order = {};
  // Batches of samples of similar length, in the order that there is without: shuffle, order and drop_last
  // keep their meaning, num_samples has none. Each bucket's last batch may be short.
  std::optional<LengthBuckets> buckets = {};
  // Instead of batch_size, shuffle, drop_last, order and buckets.
  std::shared_ptr<BatchSampler> batch_sampler = {};
  // Batches that a thread of the loader has ready, while the loop uses one: collated and on the device. 0:
  // none, the loop's thread makes each when it is needed. Unset: 1 on xla, else 0. Batches, their order and
  // what the sampler draws are the same. A dataset that draws from torch's generator is read by the loop's
  // thread all the same, so that its numbers stay the same too; another one must not share state with the
  // loop that is unsafe to use from two threads.
  std::optional<int64_t> prefetch = {};
};

namespace detail {
struct LoaderCore;
class Prefetch;

// One batch of this rank, before it is read.
struct BatchPlan {
  std::vector<int64_t> indices;  // of its samples
  int64_t rows = 0;              // as it is handed out: more than samples if it is padded
  int64_t real = -1;             // samples of the global batch that repeat no other; -1: all
  bool last = false;
  bool needs_mask = false;       // padding is nowhere but in the mask
  mutable at::Tensor mask = {};  // undefined: not made yet
  bool is_padded() const { return rows > static_cast<int64_t>(indices.size()); }
};

// Brings tensors with one row for each sample to the rows of a full batch.
class Padding {
 public:
  explicit Padding(const BatchPlan& plan)
      : samples_(static_cast<int64_t>(plan.indices.size())), rows_(plan.rows) {}
  void pad_target(at::Tensor& tensor);  // classes with -100; anything else is left to pad
  void pad(at::Tensor& tensor) const;   // with copies of the first row
  bool needs_mask() const { return others_ || !classes_; }

 private:
  bool has_row_per_sample(const at::Tensor& tensor) const;
  int64_t samples_, rows_;
  bool classes_ = false, others_ = false;
};

// One pass over a loader. Its end, by exhaustion or by an early break, takes the loader off the active ones.
// next, move and mask are for the one thread that makes batches, the rest is for the loop's.
class EpochCursor {
 public:
  explicit EpochCursor(std::shared_ptr<LoaderCore> core);
  ~EpochCursor();
  EpochCursor(const EpochCursor&) = delete;
  EpochCursor& operator=(const EpochCursor&) = delete;
  bool next(BatchPlan& plan);                                    // false when there are no more
  bool moves_batches() const;                                    // the device is not the CPU
  void move(at::Tensor& tensor, const std::string& name) const;  // `name`: within the batch
  at::Tensor mask(const BatchPlan& plan) const;
  // Makes the batches to come on another thread if the options say so and making one drew no random numbers.
  std::shared_ptr<Prefetch> in_background(std::function<std::shared_ptr<void>()> make) const;
  void leave();     // the batch in hand is done with; throws as check_padding
  void end_step();  // on xla: runs what the loop has recorded
  void note_waiting(std::chrono::steady_clock::time_point since);  // for the batch to come
  void deliver(const BatchPlan& plan);
  void finish();

 private:
  struct Pass;
  std::unique_ptr<Pass> pass_;
};

std::shared_ptr<void> take(Prefetch& prefetch);
at::Tensor mask_in_hand(LoaderCore& core);
int64_t samples_in_hand(const LoaderCore& core);
int64_t batches_of(const LoaderCore& core);
int64_t global_batch_of(const LoaderCore& core);
int64_t remainder_of(const LoaderCore& core);
int64_t length_of(const LoaderCore& core);
void set_epoch_of(LoaderCore& core, int64_t epoch);
bool at_end(const LoaderCore& core);
std::shared_ptr<LoaderCore> make_core(int64_t length, const LoaderOptions& options);
}  // namespace detail

// Batches of a map-style dataset. A cheap handle: copies share the epoch counter. Iterate it with range-for,
// one epoch at a time; one batch is read ahead (LoaderOptions::prefetch: more, by a thread that lives as long
// as the loop).
//
// Made by data_loader it reads everything, as PyTorch's DataLoader in one process. Prepared by an Accelerator
// it reads this rank's share, moves batches to the device, and tells gather_for_metrics and accumulate where
// the epoch ends. Orders are drawn exactly as Python Accelerate draws them. An epoch left early does not
// advance the epoch counter (so the next one has the same order, as in Python); set_epoch does.
//
// Prepared on xla, where each shape is another program, it pads a batch that is short: whole numbers among
// the targets (visit_targets, ivme/tensors.h) with -100, which cross entropy leaves out, everything else with
// the first sample's row. mask() tells padding from samples, on every device. If the targets of such a batch
// are not whole numbers and nobody has used its mask, nor gather_for_metrics, backward throws, or else the
// end of the iteration. Dimension 0 of a tensor is that of the samples. When a prepared model with batch
// normalisation is in training as the epoch begins, and under several ranks with even_batches, samples from
// the epoch's start complete the batch instead.
//
// Not for use by several threads at once.
template <class B>
class DataLoader {
 public:
  using batch_type = B;
  using Fetch = std::function<B(const std::vector<int64_t>&)>;

  DataLoader(std::shared_ptr<detail::LoaderCore> core, std::shared_ptr<Fetch> fetch)
      : core_(std::move(core)), fetch_(std::move(fetch)) {}

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = B;
    using difference_type = std::ptrdiff_t;
    using pointer = B*;
    using reference = B&;

    iterator() = default;
    iterator(std::shared_ptr<detail::LoaderCore> core, std::shared_ptr<Fetch> fetch)
        : run_(std::make_shared<Run>(std::move(core), std::move(fetch))) {
      advance();
    }
    B& operator*() const { return *run_->current->batch; }
    B* operator->() const { return &*run_->current->batch; }
    iterator& operator++() {
      advance();
      return *this;
    }
    void operator++(int) { advance(); }
    bool operator==(std::default_sentinel_t) const { return run_ == nullptr; }

   private:
    struct Made {
      std::optional<B> batch;
      detail::BatchPlan plan;
    };
    struct Run {
      Run(std::shared_ptr<detail::LoaderCore> core, std::shared_ptr<Fetch> f)
          : fetch(std::move(f)), cursor(std::move(core)) {
        ahead = make();
        if (ahead) background = cursor.in_background([this] { return make(); });
      }
      std::shared_ptr<Made> make() {
        auto made = std::make_shared<Made>();
        auto& [batch, plan] = *made;
        if (!cursor.next(plan)) return nullptr;
        batch.emplace((*fetch)(plan.indices));
        if (plan.is_padded()) {
          detail::Padding padding(plan);
          visit_targets(*batch, [&](at::Tensor& tensor) { padding.pad_target(tensor); });
          visit_tensors(*batch, [&](at::Tensor& tensor) { padding.pad(tensor); });
          plan.needs_mask = padding.needs_mask();
        }
        if (cursor.moves_batches())
          visit_tensors(*batch,
                        [&](at::Tensor& tensor, const std::string& name) { cursor.move(tensor, name); });
        if constexpr (detail::carries_mask<B>) batch->mask = plan.mask = cursor.mask(plan);
        return made;
      }
      std::shared_ptr<Made> next() {
        auto one = std::exchange(ahead, nullptr);
        if (one && !background) ahead = make();
        if (!one && background) one = std::static_pointer_cast<Made>(detail::take(*background));
        return one;
      }
      std::shared_ptr<Fetch> fetch;
      detail::EpochCursor cursor;
      std::shared_ptr<Made> current, ahead;
      std::shared_ptr<detail::Prefetch> background;  // last: it uses the others
    };
    void advance() {
      run_->cursor.leave();
      run_->current.reset();
      run_->cursor.end_step();
      const auto now = std::chrono::steady_clock::now();
      run_->current = run_->next();
      if (!run_->current) {
        run_->cursor.finish();
        run_.reset();
        return;
      }
      run_->cursor.note_waiting(now);
      run_->cursor.deliver(run_->current->plan);
    }
    std::shared_ptr<Run> run_;
  };

  iterator begin() const { return iterator(core_, fetch_); }
  std::default_sentinel_t end() const { return {}; }

  int64_t size() const { return detail::batches_of(*core_); }         // batches this rank sees in an epoch
  int64_t dataset_size() const { return detail::length_of(*core_); }  // samples
  int64_t global_batch_size() const {
    return detail::global_batch_of(*core_);
  }  // samples of all ranks together
  // Real samples in the last global batch (0: it is full; -1: unknown or drop_last), as Accelerate's
  // remainder.
  int64_t remainder() const { return detail::remainder_of(*core_); }
  void set_epoch(int64_t epoch) { detail::set_epoch_of(*core_, epoch); }
  bool end_of_dataloader() const { return detail::at_end(*core_); }  // the batch in hand is the last

  // Of the batch in hand, inside a loop over a prepared loader: bool [rows], true for samples and false for
  // rows that padding added, on the loader's device. Not to be written to.
  at::Tensor mask() const { return detail::mask_in_hand(*core_); }
  // Of the batch in hand: this rank's samples, without padding.
  int64_t samples() const { return detail::samples_in_hand(*core_); }

  const std::shared_ptr<detail::LoaderCore>& core() const { return core_; }
  const std::shared_ptr<Fetch>& fetch() const { return fetch_; }

 private:
  std::shared_ptr<detail::LoaderCore> core_;
  std::shared_ptr<Fetch> fetch_;
};

namespace detail {
template <class D>
concept FetchesInt64 =
    requires(D& dataset, const std::vector<int64_t>& indices) { dataset.get_batch(indices); };
template <class D>
concept FetchesOne = requires(D& dataset) { dataset.get(size_t{0}); };

struct DefaultCollate {
  template <class Item>
  auto operator()(const std::vector<Item>& items) const {
    return default_collate(items);
  }
};

template <class D>
int64_t size_of(D& dataset) {
  auto size = dataset.size();
  if constexpr (IsOptional<decltype(size)>::value)
    return size ? static_cast<int64_t>(*size) : -1;
  else
    return static_cast<int64_t>(size);
}

template <class D, class Collate>
auto fetch_batch(D& dataset, Collate& collate, const std::vector<int64_t>& indices) {
  if constexpr (FetchesInt64<D>) {
    return dataset.get_batch(indices);
  } else if constexpr (FetchesOne<D>) {
    std::vector<std::remove_cvref_t<decltype(dataset.get(size_t{0}))>> items;
    items.reserve(indices.size());
    for (int64_t index : indices) items.push_back(dataset.get(static_cast<size_t>(index)));
    return collate(items);
  } else {
    std::vector<size_t> request(indices.begin(), indices.end());
    return dataset.get_batch(c10::ArrayRef<size_t>(request));
  }
}
}  // namespace detail

// A loader over `dataset`, which it keeps (a torch::data dataset copies cheaply: tensors share storage). The
// dataset has size() and one of
//   get_batch(const std::vector<int64_t>& indices)  -> the batch: the fastest, no collating
//   get(size_t index)                               -> one sample; `collate` makes a batch of std::vector of
//   them get_batch(c10::ArrayRef<size_t>)                -> the batch, as torch::data datasets mapped with
//   Stack have it
// Throws Error when batch_size < 1, when the dataset has no size, or when options exclude each other.
template <class D, class Collate = detail::DefaultCollate>
auto data_loader(D dataset, const LoaderOptions& options = {}, Collate collate = {}) {
  auto kept = std::make_shared<D>(std::move(dataset));
  using B = decltype(detail::fetch_batch(*kept, collate, {}));
  auto core = detail::make_core(detail::size_of(*kept), options);
  auto fetch = std::make_shared<typename DataLoader<B>::Fetch>(
      [kept, collate = std::move(collate)](const std::vector<int64_t>& indices) mutable {
        return detail::fetch_batch(*kept, collate, indices);
      });
  return DataLoader<B>(std::move(core), std::move(fetch));
}

}  // namespace ivme
