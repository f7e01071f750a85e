#pragma once
#include <ATen/core/TensorBody.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "ivme/accelerator.h"
#include "ivme/data_loader.h"
#include "ivme/optim.h"
#include "message_of.h"

// What the tests of the training loop share.
namespace ivme::test {

// y = w x with one weight, which starts at 0: d(w x)/dw = x.
struct ScaleImpl : torch::nn::Module {
  at::Tensor w = register_parameter("w", at::zeros({1}));
  at::Tensor forward(const at::Tensor& x) { return w * x; }
  double weight() const { return w.item<double>(); }
};
TORCH_MODULE(Scale);

// Sample i is `first` + i, a float32.
struct Ramp {
  int64_t count;
  double first = 1;
  int64_t size() const { return count; }
  at::Tensor get_batch(const std::vector<int64_t>& indices) const {
    std::vector<double> values;
    for (int64_t index : indices) values.push_back(first + static_cast<double>(index));
    return at::tensor(values, at::kFloat);
  }
};

inline double grad_of(const at::Tensor& parameter) {
  return parameter.grad().defined() ? parameter.grad().sum().item<double>() : 0;
}

}  // namespace ivme::test
