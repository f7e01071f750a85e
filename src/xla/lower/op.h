#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "xla/lower/emitter.h"

namespace ivme::xla {

// What a row's function sees of one operation: its operands as values of the program under construction.
class Call {
 public:
  Call(Emitter& program, const std::vector<Hlo>& operands, const std::vector<Argument>& arguments)
      : emitter(program), operands_(operands), arguments_(arguments) {}

  Emitter& emitter;

  const Argument& argument(int argument) const;  // throws Error if the operation was recorded with fewer
  bool has(int argument) const;                  // neither None nor an undefined tensor
  const Hlo& tensor(int argument) const;         // throws Error if the argument is no tensor
  std::vector<Hlo> tensors(int argument) const;  // those of a list that are defined
  int64_t integer(int argument) const;
  bool boolean(int argument) const;
  double real(int argument) const;           // also of an integer
  const Dims& integers(int argument) const;  // empty for None
  const std::string& text(int argument) const;
  std::optional<Dtype> dtype(int argument) const;
  // A Scalar argument as a 0-dimensional value of this dtype: a run-time number, or a constant.
  Hlo scalar(int argument, Dtype dtype) const;
  bool is_constant(int argument, double value) const;  // a Scalar known to be this number in every run
  int count() const { return static_cast<int>(arguments_.size()); }

 private:
  const std::vector<Hlo>& operands_;
  const std::vector<Argument>& arguments_;
};

// An output that aten leaves undefined (a gradient that output_mask does not ask for, the saved statistics of
// a batch norm in evaluation) keeps its place, with dims {0}.
using Lowering = std::vector<Hlo> (*)(const Call& call);

// One aten operation. The lowering also tells the shapes of the outputs: it is run once, on an emitter whose
// text is thrown away, when an operation with new shapes or arguments is recorded.
struct Op {
  std::string_view name;  // with its overload: "aten::add.Tensor"
  Lowering lower;
  // Scalar arguments that may change from step to step without another program: their positions in the
  // schema, as bits. All others, and all numbers that are no Scalar, are part of the program.
  uint32_t run_time_scalars = 0;
};

using Rows = std::vector<Op>;

// Null when there is no row for it.
const Op* find_op(std::string_view name);
std::vector<std::string_view> op_names();

}  // namespace ivme::xla
