#pragma once
#include <ATen/core/TensorBody.h>

#include <string>
#include <vector>

#include "ivme/accelerator.h"
#include "process/group.h"

// Collectives on the user's tensors. Every one first compares operation, dtype and shape over the ranks and
// throws the same Error on all of them when they do not fit: Gloo by itself would abort the process or hang.
// Results carry no gradient and live on the tensor's device.
namespace ivme {

// Sizes of `tensor` on every rank, after a check that all ranks are in the same call.
std::vector<std::vector<int64_t>> sizes_of_all(Group& group, const std::string& what,
                                               const at::Tensor& tensor);

at::Tensor gather(Group& group, const at::Tensor& tensor);  // concatenated on dimension 0
at::Tensor reduce(Group& group, const at::Tensor& tensor, Reduction reduction);
at::Tensor pad(Group& group, const at::Tensor& tensor, int64_t dim, double value, bool first);
std::vector<std::string> gather(Group& group, const std::vector<std::string>& strings);
// Rank 0's contents into every rank's tensor, in place.
void broadcast(Group& group, at::Tensor& tensor);

}  // namespace ivme
