// bf16 autocast on xla: libtorch's own lists of operators, which it registers for other devices. Weights stay
// float32; what the lists name is computed in bf16 from copies that the program makes.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "xla/trace/record.h"

namespace ivme::xla {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastXLA, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
#define IVME_LOWER(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define IVME_FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define IVME_FP32_SET_OPT_DTYPE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define IVME_PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(IVME_LOWER)
  AT_FORALL_FP32(IVME_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(IVME_FP32_SET_OPT_DTYPE)
  AT_FORALL_PROMOTE(IVME_PROMOTE)
#undef IVME_LOWER
#undef IVME_FP32
#undef IVME_FP32_SET_OPT_DTYPE
#undef IVME_PROMOTE
}

}  // namespace

void register_autocast() {}

}  // namespace ivme::xla
