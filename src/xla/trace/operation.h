#pragma once
#include <ATen/core/dispatch/OperatorEntry.h>

#include <optional>
#include <string>
#include <vector>

#include "xla/lower/op.h"

namespace ivme::xla {

// What the recorder knows of one aten operator. An in-place or out= operator is its functional one and then a
// write.
struct Operation {
  enum class Kind { functional, in_place, out };
  // What an argument of the schema is, where its IValue does not say.
  enum class Role : uint8_t { plain, scalar, dtype, ignored };

  std::string name;  // "aten::add_.Tensor"
  Kind kind = Kind::functional;
  const Op* op = nullptr;  // the row of the functional operator; null when there is none
  size_t arguments = 0;    // of the operator
  size_t inputs = 0;       // those before the out= tensors
  size_t returns = 0;
  std::vector<Role> roles;            // of the inputs
  std::vector<size_t> written;        // positions of the tensors that are written
  std::optional<size_t> output_mask;  // position of the argument that says which results are wanted
  const char* instead = nullptr;      // for operators whose result's shape depends on data: what to use
};

// Found once for each operator. Any thread.
const Operation& operation_of(const c10::OperatorHandle& handle);

}  // namespace ivme::xla
