#pragma once
#include <ATen/core/TensorBody.h>
#include <ATen/core/ivalue.h>

#include <memory>

#include "xla/graph.h"

// A number of the host that can be asked for again. libtorch carries it to the recorder, which makes a node
// of it that knows its source; on other devices it is its present value and nothing more.
namespace ivme::xla {

// The tensor, of no dimensions and on the CPU, carries the source from now on; so do its shallow copies.
void carry(const at::Tensor& number, std::shared_ptr<const HostNumber> source);
at::Scalar carry(double value, std::shared_ptr<const HostNumber> source);

// An optimizer steps now in a call that may be replayed later, and will be asked for its numbers then.
bool asks_optimizers();

// What the tensor or the Scalar carries; null for all others.
std::shared_ptr<const HostNumber> source_of(const at::Tensor& number);
std::shared_ptr<const HostNumber> source_of(const c10::IValue& number);

}  // namespace ivme::xla
