#include <ATen/core/grad_mode.h>

#include "accelerator/keyed_dropout.h"
#include "accelerator/recording.h"
#include "accelerator/state.h"
#include "precision/autocast.h"

namespace ivme::detail {
namespace {

RowsOfRank rows_of(const AcceleratorState& accelerator) {
  RowsOfRank rows{.rank = accelerator.facts.process_index};
  const LoaderCore* loader = accelerator.active->top();
  if (!loader || !loader->in_hand) return rows;
  rows.rows = loader->in_hand->rows;
  rows.full = full_rows(*loader);
  return rows;
}

}  // namespace

ForwardScope::ForwardScope(ModelRuntime& runtime) : runtime_(runtime) {
  AcceleratorState& accelerator = *runtime_.accelerator;
  if (accelerator.recording) accelerator.recording->begin();
  if (at::GradMode::is_enabled()) runtime_.called = runtime_.called_since_backward = true;
  if (runtime_.reducer) runtime_.reducer->before_forward(!runtime_.skip_sync);
  autocast_ = accelerator.autocast();
  if (accelerator.random) dropout_ = std::make_unique<KeyedDropout>(accelerator.random, rows_of(accelerator));
}

ForwardScope::~ForwardScope() = default;

void ForwardScope::finish(const std::function<void(const TensorVisitor&)>& visit_outputs) {
  bool half = autocast_ != nullptr;
  autocast_.reset();
  dropout_.reset();
  std::vector<at::Tensor*> outputs;
  auto finish_one = [&](at::Tensor& output) {
    if (!output.defined()) return;
    if (half && (output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf))
      output = output.to(at::kFloat);
    outputs.push_back(&output);
  };
  if (half || runtime_.reducer) visit_outputs(finish_one);
  if (runtime_.reducer) runtime_.reducer->after_forward(!runtime_.skip_sync, outputs);
}

}  // namespace ivme::detail
