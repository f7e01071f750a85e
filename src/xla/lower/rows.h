#pragma once
#include "xla/lower/op.h"

namespace ivme::xla {

// The table of operations, by family. Arguments of a row are in the order of the aten schema.
Rows arithmetic_rows();     // + − × ÷, powers, lerp, addcmul
Rows comparison_rows();     // == <, logic, bits, where, masked_fill, clamp
Rows unary_rows();          // exp, sqrt, rounding, isnan, fills
Rows activation_rows();     // relu … gelu, with their gradients
Rows reduction_rows();      // sum, mean, max, norms
Rows scan_rows();           // cumsum, sort, topk
Rows softmax_rows();        // softmax, log_softmax, logsumexp
Rows loss_rows();           // nll, mse, huber, binary cross-entropy
Rows matrix_rows();         // mm, addmm, bmm, mv
Rows convolution_rows();    // any number of spatial dimensions, transposed, with gradients
Rows normalization_rows();  // layer, batch and group norm
Rows pooling_rows();        // max, average, adaptive
Rows resampling_rows();     // upsample
Rows indexing_rows();       // embedding, index, gather, scatter
Rows shape_rows();          // cat, pad, flip, roll, tril, slice_backward
Rows strided_rows();        // ivme::as_strided, ivme::as_strided_scatter
Rows creation_rows();       // ivme::cast, expand, full, iota
Rows random_rows();         // ivme::random_…, dropout's gradient
Rows recurrent_rows();      // one layer of LSTM, GRU, RNN, with gradients

// Op::run_time_scalars: these positions.
template <int... positions>
constexpr uint32_t varying = ((1u << positions) | ...);

}  // namespace ivme::xla
