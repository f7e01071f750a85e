#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ivme/collate.h"

namespace ivme {

// Which samples of unequal length share batches: those whose length lies between the same two bounds. On xla
// this makes one program for each bucket instead of one for each length.
//
//   auto buckets = ivme::length_buckets({16, 32, 64}, lengths);
//   auto loader = ivme::data_loader(texts, {.batch_size = 8, .shuffle = true, .buckets = buckets},
//                                   ivme::pad_to_bucket(buckets));
struct LengthBuckets {
  std::vector<int64_t> bounds;                        // ascending: the longest length of each bucket
  std::shared_ptr<const std::vector<int>> of_sample;  // bucket of each sample of the dataset
  bool truncate = false;                              // longer samples are cut to the last bound
  int64_t bound_for(int64_t length) const;            // the smallest bound that is not below; the last one
};

struct BucketOptions {
  bool truncate = false;  // cut samples that are longer than the last bucket; else they are refused
};
// lengths: of the dataset's samples, by index. Throws Error when the bounds are none, below 1 or do not
// ascend, and, unless truncate is set, naming the first sample that is longer than the last bound.
LengthBuckets length_buckets(std::vector<int64_t> bounds, const std::vector<int64_t>& lengths,
                             const BucketOptions& options = {});

// A batch of sequences, padded to one length L.
struct SequenceBatch {
  at::Tensor data;       // [B, L, ...]
  at::Tensor target;     // [B], or [B, L, ...] when there is one for each token; undefined without targets
  at::Tensor lengths;    // int64 [B]
  at::Tensor tokens;     // bool [B, L]: true for tokens, false for padding behind them
  at::Tensor mask = {};  // bool [B]: as Batch::mask. Rows that it excludes repeat the first sample's.
};
void for_each_tensor(SequenceBatch& batch, const TensorVisitor& visit);  // those that are defined

struct PaddingOptions {
  double value = 0;  // of tokens behind the end; must be a valid index where the data are indices
};

namespace detail {
template <class B>
inline constexpr bool carries_mask = std::is_same_v<B, Batch> || std::is_same_v<B, SequenceBatch>;

// data: [t, ...] each. targets: none, or one for each sample, 0-d or with as many rows as its data.
SequenceBatch pad_sequences(const LengthBuckets& buckets, const PaddingOptions& options,
                            std::vector<at::Tensor> data, std::vector<at::Tensor> targets);

template <class T>
std::vector<at::Tensor> tensors_of(const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, at::Tensor>)
    return values;
  else
    return default_collate(values).unbind(0);
}
}  // namespace detail

// Makes a SequenceBatch of samples that are a tensor [t, ...], or a tensor and its target: an Example, a
// pair, or a tuple of two. A target that is a number or a 0-d tensor is the sample's; any other has one row
// for each token, and is padded with -100 where it holds whole numbers, which cross entropy and nll_loss
// leave out by default, else with 0. L is the smallest bound that the longest sample fits in. Throws Error
// when shapes do not fit, and when a sample is longer than the last bound and truncate is off.
class PadToBucket {
 public:
  PadToBucket(LengthBuckets buckets, const PaddingOptions& options)
      : buckets_(std::move(buckets)), options_(options) {}

  template <class Item>
  SequenceBatch operator()(const std::vector<Item>& items) const {
    if constexpr (std::is_same_v<Item, at::Tensor>) {
      return detail::pad_sequences(buckets_, options_, items, {});
    } else if constexpr (detail::Example<Item>) {
      auto data = detail::project(items, [](const Item& item) { return item.data; });
      auto targets = detail::project(items, [](const Item& item) { return item.target; });
      return detail::pad_sequences(buckets_, options_, data, detail::tensors_of(targets));
    } else if constexpr (detail::DataOnlyExample<Item>) {
      return detail::pad_sequences(buckets_, options_,
                                   detail::project(items, [](const Item& item) { return item.data; }), {});
    } else {
      static_assert(detail::TupleLike<Item> && std::tuple_size_v<Item> == 2,
                    "pad_to_bucket takes tensors, Examples, and pairs of a tensor and its target");
      auto data = detail::project(items, [](const Item& item) { return std::get<0>(item); });
      auto targets = detail::project(items, [](const Item& item) { return std::get<1>(item); });
      return detail::pad_sequences(buckets_, options_, data, detail::tensors_of(targets));
    }
  }

 private:
  LengthBuckets buckets_;
  PaddingOptions options_;
};
inline PadToBucket pad_to_bucket(LengthBuckets buckets, const PaddingOptions& options = {}) {
  return {std::move(buckets), options};
}

}  // namespace ivme
