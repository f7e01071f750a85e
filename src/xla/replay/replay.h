#pragma once
#include <ATen/core/TensorBody.h>

#include <memory>
#include <optional>
#include <vector>

#include "xla/replay/capture.h"

namespace ivme::xla {

// Runs the captured step again, without the host's code that it came from: takes the inputs from their
// places, asks the numbers' sources and does the host's actions in their order, starts the program, and puts
// the results in their places. What the call returns; nothing, and nothing has been done, when a tensor that
// the step used is gone or is not what it was. `arguments` and `parameters` as in the capture; nothing of the
// context is pending. Throws Error as end_step does.
std::optional<std::vector<at::Tensor>> replay(const CapturedStep& step, Context& context,
                                              const std::vector<at::Tensor>& arguments,
                                              const std::vector<at::Tensor>& parameters);

// Two inputs that were different have one buffer in this call: recorded, it would be another program.
bool shares_inputs(const CapturedStep& step, const std::vector<at::Tensor>& arguments);

}  // namespace ivme::xla
