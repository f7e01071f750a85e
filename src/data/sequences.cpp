#include "ivme/sequences.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <sstream>

#include "data/padding.h"
#include "ivme/error.h"

namespace ivme {
namespace {

std::string text_of(const std::vector<int64_t>& bounds) {
  std::string text;
  for (int64_t bound : bounds) text += (text.empty() ? "" : ", ") + std::to_string(bound);
  return "{" + text + "}";
}

[[noreturn]] void refuse_length(const std::string& what, int64_t length, int64_t last) {
  throw Error(what + " has a length of " + std::to_string(length) + ", but the last bucket ends at " +
              std::to_string(last) + ". Add a longer bucket, or set truncate to cut it.");
}

void check_bounds(const std::vector<int64_t>& bounds) {
  const bool ascending =
      std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) == bounds.end();
  if (bounds.empty() || bounds.front() < 1 || !ascending)
    throw Error("length_buckets was asked for the bounds " + text_of(bounds) +
                ". Give at least one, from 1 upwards, each larger than the one before.");
}

// Rows [t, ...] one below the other as [B, L, ...], `value` behind their ends.
at::Tensor padded(const std::vector<at::Tensor>& rows, int64_t length, double value, const char* what) {
  at::Tensor first = rows.front();
  std::vector<int64_t> shape = {static_cast<int64_t>(rows.size()), length};
  for (int64_t dim = 1; dim < first.dim(); ++dim) shape.push_back(first.size(dim));
  at::Tensor all = at::full(shape, value, first.options());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].dim() < 1 || rows[i].sizes().slice(1) != first.sizes().slice(1) ||
        rows[i].scalar_type() != first.scalar_type()) {
      std::ostringstream message;
      message << "A batch of sequences was asked for, but the " << what << " of sample 0 has the shape "
              << first.sizes() << " and that of sample " << i << " the shape " << rows[i].sizes()
              << ". Samples may differ in their first dimension only, and not in dtype.";
      throw Error(message.str());
    }
    const int64_t kept = std::min(rows[i].size(0), length);
    all[static_cast<int64_t>(i)].narrow(0, 0, kept).copy_(rows[i].narrow(0, 0, kept));
  }
  return all;
}

}  // namespace

int64_t LengthBuckets::bound_for(int64_t length) const {
  auto found = std::lower_bound(bounds.begin(), bounds.end(), length);
  return found == bounds.end() ? bounds.back() : *found;
}

LengthBuckets length_buckets(std::vector<int64_t> bounds, const std::vector<int64_t>& lengths,
                             const BucketOptions& options) {
  check_bounds(bounds);
  std::vector<int> of_sample;
  of_sample.reserve(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > bounds.back() && !options.truncate)
      refuse_length("Sample " + std::to_string(i), lengths[i], bounds.back());
    const auto found = std::lower_bound(bounds.begin(), bounds.end() - 1, lengths[i]);
    of_sample.push_back(static_cast<int>(found - bounds.begin()));
  }
  return {std::move(bounds), std::make_shared<const std::vector<int>>(std::move(of_sample)),
          options.truncate};
}

void for_each_tensor(SequenceBatch& batch, const TensorVisitor& visit) {
  for (at::Tensor* tensor : {&batch.data, &batch.target, &batch.lengths, &batch.tokens, &batch.mask})
    if (tensor->defined()) visit(*tensor);
}

namespace detail {

SequenceBatch pad_sequences(const LengthBuckets& buckets, const PaddingOptions& options,
                            std::vector<at::Tensor> data, std::vector<at::Tensor> targets) {
  if (data.empty()) throw Error("pad_to_bucket was given no samples. A batch holds at least one.");
  const int64_t last = buckets.bounds.back();
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < data.size(); ++i) {
    const int64_t length = data[i].dim() > 0 ? data[i].size(0) : 1;
    if (length > last && !buckets.truncate)
      refuse_length("Sample " + std::to_string(i) + " of a batch", length, last);
    lengths.push_back(std::min(length, last));
    if (targets.empty() || targets[i].dim() == 0 || targets[i].size(0) == length) continue;
    std::ostringstream message;
    message << "A batch of sequences was asked for, but sample " << i << " has " << length
            << " tokens and a target of shape " << targets[i].sizes()
            << ". Give one target for the sample, or one for each token; for anything else write a collate "
               "function.";
    throw Error(message.str());
  }
  const int64_t length = buckets.bound_for(*std::max_element(lengths.begin(), lengths.end()));
  SequenceBatch batch;
  batch.data = padded(data, length, options.value, "data");
  batch.lengths = tensor_of(lengths);
  batch.tokens = at::zeros(batch.data.sizes().slice(0, 2), at::kBool);
  for (size_t i = 0; i < lengths.size(); ++i)
    batch.tokens[static_cast<int64_t>(i)].narrow(0, 0, lengths[i]).fill_(true);
  if (targets.empty()) return batch;
  if (targets.front().dim() == 0) {
    batch.target = stack(targets);
  } else {
    const bool classes = holds_classes(targets.front().scalar_type());
    batch.target = padded(targets, length, classes ? ignored_class : 0, "target");
  }
  return batch;
}

}  // namespace detail
}  // namespace ivme
