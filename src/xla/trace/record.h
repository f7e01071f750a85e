#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ivme::xla {

// The kernel of every operator that has none of its own on xla: records it.
void record(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The files that register things with libtorch are linked because these are called.
void register_autocast();
void register_composites();
void register_kernels();
void register_random();
void register_recurrent();
void register_device_guard();

}  // namespace ivme::xla
