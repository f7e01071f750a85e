#pragma once
#include "ivme/optim.h"
#include "ivme/schedule.h"
#include "support/flags.h"

// What the examples' flags say about the loop.
namespace examples {

// Micro-batches that each process runs when an epoch has `batches_per_epoch` of them: --max_batches or
// --epochs, whichever ends first; one epoch if neither was given.
int64_t batches_to_run(const Flags& flags, int64_t batches_per_epoch);

// --optimizer. SGD with momentum 0.9, or AdamW with weight decay 0.01.
ivme::optim::Optimizer make_optimizer(const Flags& flags, std::vector<at::Tensor> parameters, double lr);

// --scheduler. A schedule lasts T single-process steps, whatever --epochs ends earlier: T / 10 of warm-up, or
// the learning rate halved every T / 4.
ivme::optim::Schedule make_schedule(const Flags& flags, const ivme::Accelerator& accelerator,
                                    const ivme::optim::Optimizer& optimizer, int64_t batches_per_epoch);

// Sums up an evaluation: how many predictions hit, and the mean loss.
class Score {
 public:
  // hits: one truth value per prediction; losses: float32, one per sample. Both as gathered from all
  // processes.
  void add(const at::Tensor& hits, const at::Tensor& losses);
  double accuracy() const { return static_cast<double>(hits_) / static_cast<double>(predictions_); }
  double loss() const { return loss_sum_ / static_cast<double>(samples_); }

 private:
  int64_t hits_ = 0, predictions_ = 0, samples_ = 0;
  double loss_sum_ = 0;
};

}  // namespace examples
