#pragma once
#include <ATen/core/TensorBody.h>

#include <memory>
#include <string>
#include <vector>

#include "ivme/accelerator.h"
#include "process/group.h"

namespace c10d {
class Logger;
}  // namespace c10d

namespace ivme {

// The gradients of one model averaged over the ranks while backward runs: c10d::Reducer, driven as PyTorch's
// DistributedDataParallel drives it, so that bits agree with it. The first update uses one bucket for all
// parameters; from the second on, buckets follow the order in which gradients became ready.
class BucketReducer {
 public:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    bool sparse_gradient = false;
  };
  // `parameters`: those that need gradients, each tensor once. Checks that all ranks have the same ones and
  // makes rank 0's values everybody's. Collective.
  BucketReducer(std::shared_ptr<Group> group, std::vector<Parameter> parameters,
                std::vector<at::Tensor> buffers, const DataParallelOptions& options);
  ~BucketReducer();

  // Around each forward. `synchronise`: the backward that follows reduces.
  void before_forward(bool synchronise);
  void after_forward(bool synchronise, const std::vector<at::Tensor*>& outputs);

  // Throws Error, naming parameters, when the last backward did not reach all of them: then the gradients of
  // this rank have not been averaged, and no other rank need know.
  void check_finished() const;
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  class Reducer;

  std::shared_ptr<Group> group_;
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> buffers_;
  DataParallelOptions options_;
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // null without find_unused_parameters
  bool buffers_are_stale_ = true;
};

}  // namespace ivme
