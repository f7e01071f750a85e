#pragma once
#include <cstddef>
#include <functional>
#include <iterator>

#include "ivme/collate.h"
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
  // Instead of batch_size, shuffle, drop_last and order.
  std::shared_ptr<BatchSampler> batch_sampler = {};
};

namespace detail {
struct LoaderCore;

// One pass over a loader. Its end, by exhaustion or by an early break, takes the loader off the active ones.
class EpochCursor {
 public:
  explicit EpochCursor(std::shared_ptr<LoaderCore> core);
  ~EpochCursor();
  EpochCursor(const EpochCursor&) = delete;
  EpochCursor& operator=(const EpochCursor&) = delete;
  bool next_indices(std::vector<int64_t>& indices);              // false when there are no more
  bool moves_batches() const;                                    // the device is not the CPU
  void move(at::Tensor& tensor, const std::string& name) const;  // `name`: within the batch
  void deliver(const std::vector<int64_t>& indices, bool last);
  void finish();

 private:
  struct Pass;
  std::unique_ptr<Pass> pass_;
};

int64_t batches_of(const LoaderCore& core);
int64_t global_batch_of(const LoaderCore& core);
int64_t remainder_of(const LoaderCore& core);
int64_t length_of(const LoaderCore& core);
void set_epoch_of(LoaderCore& core, int64_t epoch);
bool at_end(const LoaderCore& core);
std::shared_ptr<LoaderCore> make_core(int64_t length, const LoaderOptions& options);
}  // namespace detail

// Batches of a map-style dataset. A cheap handle: copies share the epoch counter. Iterate it with range-for,
// one epoch at a time; one batch is read ahead, so that the last one is known as such before it is handed
// out.
//
// Made by data_loader it reads everything, as PyTorch's DataLoader in one process. Prepared by an Accelerator
// it reads this rank's share, moves batches to the device, and tells gather_for_metrics and accumulate where
// the epoch ends. Orders are drawn exactly as Python Accelerate draws them. An epoch left early does not
// advance the epoch counter (so the next one has the same order, as in Python); set_epoch does.
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
      run_->read_ahead();
      advance();
    }
    B& operator*() const { return *run_->current; }
    B* operator->() const { return &*run_->current; }
    iterator& operator++() {
      advance();
      return *this;
    }
    void operator++(int) { advance(); }
    bool operator==(std::default_sentinel_t) const { return run_ == nullptr; }

   private:
    struct Run {
      Run(std::shared_ptr<detail::LoaderCore> core, std::shared_ptr<Fetch> f)
          : fetch(std::move(f)), cursor(std::move(core)) {}
      void read_ahead() {
        ahead.reset();
        if (!cursor.next_indices(ahead_indices)) return;
        ahead.emplace((*fetch)(ahead_indices));
        if (cursor.moves_batches())
          visit_tensors(*ahead,
                        [&](at::Tensor& tensor, const std::string& name) { cursor.move(tensor, name); });
      }
      std::shared_ptr<Fetch> fetch;
      detail::EpochCursor cursor;
      std::optional<B> current, ahead;
      std::vector<int64_t> indices, ahead_indices;
    };
    void advance() {
      run_->current.reset();
      if (!run_->ahead) {
        run_->cursor.finish();
        run_.reset();
        return;
      }
      run_->current.emplace(std::move(*run_->ahead));
      run_->indices.swap(run_->ahead_indices);
      run_->read_ahead();
      run_->cursor.deliver(run_->indices, !run_->ahead);
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
