#pragma once
#include <ATen/core/TensorBody.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "data/loader_core.h"
#include "record/run_record.h"

namespace torch::nn {
class Module;
}

namespace ivme {

namespace detail {
struct AcceleratorState;
struct PreparedOptimizerState;
}  // namespace detail

// Watches a run and writes its record (docs/run_record.md): what was backwarded since the last update, which
// samples that came from, and the norms. One per rank; for the thread that trains.
class Recording {
 public:
  Recording(const detail::AcceleratorState& state, record::RecordOptions options,
            std::shared_ptr<record::Board> board);
  ~Recording();  // what is still to be read is read and written

  void begin();  // the first step begins; later calls do nothing
  void model_prepared(const torch::nn::Module& module);
  void micro_batch_entered() { ++scopes_entered_; }
  void backward(const at::Tensor& loss, const detail::LoaderCore* loader);
  // Before gradients are scaled: `total` is the norm over `parameters`.
  void before_clip(const std::vector<at::Tensor>& parameters, const at::Tensor& total);
  void before_step(detail::PreparedOptimizerState& optimizer);
  void after_step(detail::PreparedOptimizerState& optimizer);
  void count_tokens(int64_t n);
  void epoch_ended();
  void final(const record::Numbers& metrics);

 private:
  // The backwards between two updates.
  struct Since {
    std::vector<at::Tensor> losses;  // one per micro-batch, 0-d, summed over its backwards
    int64_t scope = -1, batch = -1;  // which micro-batch the last loss belongs to
    int64_t samples = 0;
    uint64_t order = 0;
    std::optional<int64_t> tokens;
  };
  struct OfOptimizer {
    int64_t steps = 0;
    at::Tensor grad_norm;  // undefined: not known yet in this step
    double lr = 0;
    std::vector<at::Tensor> before;  // the parameters before the update, when its norm is wanted
  };
  // A step whose numbers have not been read. On xla they exist when the step has run: reading them earlier
  // would cut it.
  struct Unread {
    record::StepEntry entry;
    at::Tensor grad_norm;
    std::vector<at::Tensor> losses, parameters,
        updates;  // losses of the micro-batches; norms, one for each parameter
    bool wants_norms = false;
  };
  enum class Which { those_that_exist, all };
  void read(Which which);
  bool wants_norms(const OfOptimizer& mine) const;  // of the step to come

  OfOptimizer& of(const detail::PreparedOptimizerState& optimizer);
  record::Facts facts(const detail::PreparedOptimizerState& optimizer) const;

  const detail::AcceleratorState& state_;
  record::RunRecord record_;
  int64_t every_;
  bool begun_ = false, facts_written_ = false;
  std::chrono::steady_clock::time_point start_;
  int64_t scopes_entered_ = 0;
  Since pending_, current_;  // since the last update; what the last update used
  std::vector<OfOptimizer> optimizers_;
  std::deque<Unread> unread_;
  const detail::LoaderCore* training_loader_ = nullptr;
  std::string init_;
  bool batch_norm_ = false, dropout_ = false;
};

}  // namespace ivme
