#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

namespace ivme::xla {

enum class RecurrentKind : uint8_t { lstm, gru, rnn_tanh, rnn_relu };

// The gradients of one layer, recorded position by position with operators that autograd can derive again:
// for gradients of gradients. The program grows with the length of the sequence.
// `inputs` as RecurrentLayer saves them: projection [T, B, G], h [B, P], c, W_hh, b_hh, W_hr, valid [T, B],
// …; undefined where there is none. `gradients` of h of all positions, the last h, the last c; undefined:
// zero. Gives the gradients of the first six inputs, undefined where nothing is asked.
std::vector<at::Tensor> differentiable_gradients(RecurrentKind kind, bool reverse,
                                                 const std::vector<at::Tensor>& inputs,
                                                 const std::vector<at::Tensor>& gradients);

}  // namespace ivme::xla
