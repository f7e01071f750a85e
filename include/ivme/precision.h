#pragma once
#include <string>

namespace ivme {

// What the forward pass computes in. Parameters, gradients and optimizer state stay float32.
//   no    float32 throughout
//   bf16  autocast to bfloat16 inside a prepared model's forward; outputs come back as float32
//   fp16  needs a gradient scaler and a GPU; refused with a sentence until then
enum class Precision { no, bf16, fp16 };

const char* name(Precision precision);
// Throws Error naming the nearest valid word when `word` is not no, bf16 or fp16.
Precision parse_precision(const std::string& word);

}  // namespace ivme
