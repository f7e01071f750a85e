#pragma once
#include <string_view>
#include <vector>

#include "xla/graph.h"

namespace ivme::xla {

// What a program takes and gives, read from the text of its function @main.
struct Signature {
  std::vector<Shape> arguments;
  std::vector<Shape> results;
  std::vector<int>
      aliases;  // one for each argument: the result that may take its memory (tf.aliasing_output), or -1
};

// `program` is StableHLO text. Throws Error when it has no @main whose arguments and results are tensors of
// static shape and of a Dtype.
Signature read_signature(std::string_view program);

}  // namespace ivme::xla
