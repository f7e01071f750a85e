#pragma once

namespace torch::optim {
class Optimizer;
}

namespace ivme::optim {

// Makes the state that the first step of an optimizer of libtorch would make, as zeros beside the parameters,
// where a step from zeros is that first step; moves state that is on another device. State that exists stays.
// False for a class that is not known.
bool create_torch_state(torch::optim::Optimizer& optimizer);

}  // namespace ivme::optim
