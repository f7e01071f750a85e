#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "accelerator/state.h"

namespace ivme::detail {

// Prepared models that a backward reaches although they were not called as the prepared object: on several
// ranks their gradients are not reduced, and nothing else would tell. Made before a backward, checked after
// it.
class UncalledModels {
 public:
  explicit UncalledModels(const AcceleratorState& state);
  // Throws Error if a gradient of such a model has changed.
  void check() const;

 private:
  // Of each parameter's gradient: which tensor it is, and how often it was written.
  using Gradients = std::vector<std::pair<const void*, int64_t>>;
  static Gradients gradients(const ModelRuntime& model);

  bool several_ranks_;
  std::vector<std::pair<std::shared_ptr<ModelRuntime>, Gradients>> suspects_;
};

// Before the update of several ranks. Throws Error when a prepared model that the optimizer trains has
// gradients that were not averaged, since the backward left parameters out; says once on stderr when the
// optimizer trains tensors of no prepared model, whose gradients nobody averages.
void check_averaged(const AcceleratorState& state, PreparedOptimizerState& optimizer);

}  // namespace ivme::detail
