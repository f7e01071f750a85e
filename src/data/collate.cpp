#include "ivme/collate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <sstream>

#include "ivme/error.h"

namespace ivme::detail {
namespace {

template <class T>
at::Tensor copied(const std::vector<T>& values, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), static_cast<T*>(tensor.mutable_data_ptr()));
  return tensor;
}

}  // namespace

at::Tensor stack(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].sizes() == tensors[0].sizes()) continue;
    std::ostringstream message;
    message << "A batch of " << tensors.size() << " samples was asked for, but sample 0 has the shape "
            << tensors[0].sizes() << " and sample " << i << " the shape " << tensors[i].sizes()
            << ". Bring samples to one shape in the dataset, or give data_loader a collate function that "
               "pads them.";
    throw Error(message.str());
  }
  return at::stack(tensors);
}

at::Tensor tensor_of(const std::vector<int64_t>& values) { return copied(values, at::kLong); }
at::Tensor tensor_of(const std::vector<bool>& values) { return copied(values, at::kBool); }
at::Tensor tensor_of(const std::vector<float>& values) { return copied(values, at::kFloat); }
at::Tensor tensor_of(const std::vector<double>& values) { return copied(values, at::kDouble); }

}  // namespace ivme::detail
