#pragma once
#include <ATen/core/TensorBody.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

namespace ivme::test {

// Sample i is the number i, so that a batch tells which samples it holds.
struct Numbers {
  int64_t count;
  int64_t size() const { return count; }
  at::Tensor get_batch(const std::vector<int64_t>& indices) const { return at::tensor(indices, at::kLong); }
};

using Batches = std::vector<std::vector<int64_t>>;

inline std::vector<int64_t> values(const at::Tensor& tensor) {
  at::Tensor flat = tensor.contiguous();
  const int64_t* first = flat.const_data_ptr<int64_t>();
  return {first, first + flat.numel()};
}

template <class Loader>
Batches epoch(const Loader& loader) {
  Batches batches;
  for (const at::Tensor& batch : loader) batches.push_back(values(batch));
  return batches;
}

inline std::vector<int64_t> joined(const Batches& batches) {
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

// 0, 1, ..., n - 1
inline std::vector<int64_t> numbers_below(int64_t n) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace ivme::test
