#include "accelerator/early_end.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "accelerator/recording.h"
#include "accelerator/state.h"
#include "process/environment.h"

namespace ivme::detail {
namespace {

[[noreturn]] void end_program(AcceleratorState& state) {
  state.recording.reset();
  if (state.group) state.group->say_goodbye();
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(0);  // no destructors: the caller's objects still use the group's threads
}

}  // namespace

EarlyEnd::EarlyEnd() {
  if (auto probe = read_environment("IVME_PROBE"); probe && is_true("IVME_PROBE", *probe)) {
    steps_ = 1;
    return;
  }
  auto text = read_environment("IVME_MAX_STEPS");
  if (!text) return;
  int64_t steps = 0;
  auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), steps);
  if (failure != std::errc() || end != text->data() + text->size() || steps < 1)
    throw Error("The environment says IVME_MAX_STEPS=" + *text +
                ", which is not a positive number of steps.");
  steps_ = steps;
}

void EarlyEnd::before_step(AcceleratorState& state, const PreparedOptimizerState& optimizer) {
  if (steps_ && optimizer.steps >= *steps_) end_program(state);
}

void EarlyEnd::after_step(AcceleratorState& state, PreparedOptimizerState& optimizer) {
  ++optimizer.steps;
  if (!steps_) return;
  for (const auto& other : held(state.optimizers))
    if (other->steps < *steps_) return;
  end_program(state);
}

}  // namespace ivme::detail
