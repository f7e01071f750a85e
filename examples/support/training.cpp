#include "support/training.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ivme/error.h"

namespace examples {

int64_t batches_to_run(const Flags& flags, int64_t batches_per_epoch) {
  constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
  const int64_t epochs = flags.epochs.value_or(flags.max_batches ? unlimited : 1);
  return std::min(flags.max_batches.value_or(unlimited),
                  epochs > unlimited / batches_per_epoch ? unlimited : epochs * batches_per_epoch);
}

ivme::optim::Optimizer make_optimizer(const Flags& flags, std::vector<at::Tensor> parameters, double lr) {
  if (flags.optimizer == "adamw")
    return ivme::optim::AdamW(std::move(parameters), {.lr = lr, .weight_decay = 0.01});
  return ivme::optim::SGD(std::move(parameters), {.lr = lr, .momentum = 0.9});
}

ivme::optim::Schedule make_schedule(const Flags& flags, const ivme::Accelerator& accelerator,
                                    const ivme::optim::Optimizer& optimizer, int64_t batches_per_epoch) {
  const int64_t batches = flags.max_batches.value_or(flags.epochs.value_or(1) * batches_per_epoch);
  const int64_t steps_per_update = flags.accelerator.sharing.split_batches ? 1 : accelerator.num_processes();
  const int64_t total = batches / accelerator.gradient_accumulation_steps() * steps_per_update;
  if (flags.scheduler == "linear_warmup")
    return ivme::optim::linear_with_warmup(optimizer, {.warmup_steps = total / 10, .total_steps = total});
  if (flags.scheduler == "cosine") return ivme::optim::cosine_annealing(optimizer, {.total_steps = total});
  if (flags.scheduler == "step")
    return ivme::optim::step_decay(optimizer, {.step_size = total / 4, .gamma = 0.5});
  return ivme::optim::constant(optimizer);
}

void Score::add(const at::Tensor& hits, const at::Tensor& losses) {
  hits_ += hits.sum().item<int64_t>();
  predictions_ += hits.numel();
  samples_ += losses.numel();
  const at::Tensor values = losses.cpu().contiguous();
  const float* first = values.const_data_ptr<float>();
  loss_sum_ = std::accumulate(first, first + values.numel(), loss_sum_);
}

}  // namespace examples
