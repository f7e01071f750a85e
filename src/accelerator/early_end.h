#pragma once
#include <cstdint>
#include <optional>

namespace ivme::detail {

struct AcceleratorState;
struct PreparedOptimizerState;

// IVME_MAX_STEPS=n ends the program after n steps, IVME_PROBE=1 after the first, with exit code 0: what lets
// a tool run a program only as far as it needs. With several optimizers, when each has made n, or one is
// about to make one more. These are the only places where the library ends a program.
class EarlyEnd {
 public:
  EarlyEnd();  // reads the environment; throws Error for what is not a positive number
  void before_step(AcceleratorState& state, const PreparedOptimizerState& optimizer);
  void after_step(AcceleratorState& state, PreparedOptimizerState& optimizer);

 private:
  std::optional<int64_t> steps_;
};

}  // namespace ivme::detail
