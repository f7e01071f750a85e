// The operators that do more on xla than being recorded: they make tensors, views of them, and copies to and
// from the host.
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <torch/library.h>

#include <cmath>

#include "ivme/error.h"
#include "xla/step.h"
#include "xla/trace/arguments.h"
#include "xla/trace/origin.h"
#include "xla/trace/record.h"
#include "xla/trace/storage.h"

namespace ivme::xla {
namespace {

// Contents that nobody set are zeros: a constant costs a program nothing.
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat>) {
  return make_tensor(zeros({dtype_of(dtype.value_or(at::kFloat)), size.vec()}), nullptr);
}

// Strides are only a matter of memory, which XLA lays out as it likes: always contiguous.
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin) {
  return empty(size, dtype, layout, device, pin, std::nullopt);
}

at::Tensor new_empty_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pin) {
  at::ScalarType type = dtype.value_or(self.scalar_type());
  if (device && !device->is_xla()) return at::empty_strided(size, stride, type, layout, device, pin);
  return empty(size, type, layout, device, pin, std::nullopt);
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                       at::Tensor& out) {
  const bool floating = at::isFloatingType(out.scalar_type());
  const double count = floating ? std::ceil((end.toDouble() - start.toDouble()) / step.toDouble())
                                : std::ceil(static_cast<double>(end.toLong() - start.toLong()) /
                                            static_cast<double>(step.toLong()));
  if (!(count >= 0) || std::isinf(count))
    throw Error("arange was asked for numbers from " + c10::str(start) + " to " + c10::str(end) +
                " in steps of " + c10::str(step) + ". The step must lead from the one to the other.");
  auto run_time = [&](const at::Scalar& value) {
    return Value{floating ? make_number(Dtype::f64, value.toDouble())
                          : make_number(Dtype::i64, value.toLong())};
  };
  Value numbers{
      make_operation(row("ivme::iota"), {run_time(start), run_time(step)},
                     {dtype_argument(dtype_of(out.scalar_type())),
                      whole_numbers({static_cast<int64_t>(count)}), whole_number(0), number(0), number(1)})};
  replace(out, std::move(numbers), nullptr);
  return out;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  bool from_xla = self.device().type() == at::kXLA;
  if (to.device().type() != at::kXLA) {
    to.copy_(to_host(self));
  } else if (from_xla) {
    write(to, read(self), storage_of(self).context());
  } else {
    write(to, to_device(self.to(to.scalar_type())), nullptr);
  }
  return to;
}

// What the CPU fallback writes its results with.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (self.sizes() == to.sizes()) return copy_from(self, to, false);
  replace(to, self.device().is_xla() ? read(self) : to_device(self.to(to.scalar_type())), nullptr);
  return to;
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return to_host(self).item(); }

// What is seen to be one value is not read: nn::MultiheadAttention compares its query with its key.
bool is_one_value(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_xla() || !b.is_xla() || a.strides() != b.strides() || a.storage_offset() != b.storage_offset())
    return false;
  const Value of_a = storage_of(a).value(), of_b = storage_of(b).value();
  return of_a.node == of_b.node && of_a.output == of_b.output;
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  return is_one_value(self, other) || at::equal(to_host(self), to_host(other));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

const at::Tensor& as_strided_inplace(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                                     std::optional<int64_t> offset) {
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(self.storage_offset()));
  return self;
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  auto inferred = at::infer_size_dv(size, self.numel());
  auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  if (!stride)
    throw Error("view(" + c10::str(size) + ") was called on a tensor of sizes " + c10::str(self.sizes()) +
                " and strides " + c10::str(self.strides()) +
                ", whose elements are not in that order. Use reshape().");
  return at::native::as_strided_tensorimpl(self, inferred, *stride, self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(self, size, stride, self.storage_offset());
}

at::Tensor alias(const at::Tensor& self) {
  return at::native::as_strided_tensorimpl(self, self.sizes(), self.strides(), self.storage_offset());
}

at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  dim = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  if (size < 0 || size > length || step < 1)
    throw Error("unfold was asked for windows of " + std::to_string(size) + " elements, " +
                std::to_string(step) + " apart, along a dimension of " + std::to_string(length) +
                ". Windows must fit in the dimension, and be at least 1 apart.");
  at::DimVector sizes(self.sizes()), strides(self.strides());
  sizes.push_back(size);
  strides.push_back(self.dim() == 0 ? 1 : self.stride(dim));
  if (self.dim() > 0) {
    sizes[static_cast<size_t>(dim)] = (length - size) / step + 1;
    strides[static_cast<size_t>(dim)] *= step;
  }
  return at::native::as_strided_tensorimpl(self, sizes, strides, self.storage_offset());
}

at::Tensor& set_(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                 at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(size, stride, offset);
  return self;
}

// A tensor on another device may take this one's place in a parameter: that is how Module::to moves a model.
bool has_compatible_shallow_copy_type(const at::Tensor&, const at::Tensor&) { return true; }

// The schema does not say that the running statistics change.
void native_batch_norm(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
  auto arguments = torch::jit::last(*stack, 8);
  at::Tensor input = arguments[0].toTensor();
  at::Tensor mean = arguments[3].isTensor() ? arguments[3].toTensor() : at::Tensor();
  at::Tensor variance = arguments[4].isTensor() ? arguments[4].toTensor() : at::Tensor();
  const bool training = arguments[5].toBool();
  const double momentum = arguments[6].toDouble(), eps = arguments[7].toDouble();
  record(handle, keys, stack);
  if (!training || !mean.defined() || !variance.defined()) return;
  at::Tensor batch_mean = (*stack)[stack->size() - 2].toTensor();
  at::Tensor inverse_deviation = (*stack)[stack->size() - 1].toTensor();
  auto count = static_cast<double>(input.numel() / input.size(1));
  mean.mul_(1 - momentum).add_(batch_mean, momentum);
  at::Tensor batch_variance = inverse_deviation.pow(-2).sub_(eps);
  variance.mul_(1 - momentum).add_(batch_variance, momentum * count / (count - 1));
}

TORCH_LIBRARY_IMPL(_, XLA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

TORCH_LIBRARY_IMPL(aten, XLA, library) {
  library.impl("empty.memory_format", Located<empty>::call);
  library.impl("empty_strided", Located<empty_strided>::call);
  library.impl("arange.start_out", Located<arange_out>::call);
  library.impl("new_empty_strided", Located<new_empty_strided>::call);
  library.impl("_copy_from", Located<copy_from>::call);
  library.impl("_copy_from_and_resize", Located<copy_from_and_resize>::call);
  library.impl("_local_scalar_dense", Located<local_scalar_dense>::call);
  library.impl("equal", Located<equal>::call);
  library.impl("as_strided", Located<as_strided>::call);
  library.impl("as_strided_", Located<as_strided_inplace>::call);
  library.impl("view", Located<view>::call);
  library.impl("_reshape_alias", Located<reshape_alias>::call);
  library.impl("alias", Located<alias>::call);
  library.impl("unfold", Located<unfold>::call);
  library.impl("set_.source_Storage_storage_offset", Located<set_>::call);
  library.impl("native_batch_norm", torch::CppFunction::makeFromBoxedFunction<&native_batch_norm>());
  // Those that libtorch would otherwise take apart, or that it has for CPU and CUDA only.
  for (const char* name : {"convolution_overrideable", "convolution_backward_overrideable",
                           "native_layer_norm", "native_group_norm", "embedding", "native_dropout",
                           "slice_backward", "select_backward", "cummax", "cummin"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&record>());
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, library) {
  library.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace

void register_kernels() {}

}  // namespace ivme::xla
