#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <memory>

#include "xla/compile/client.h"
#include "xla/trace/storage.h"

namespace ivme::xla {

// A recording for an Accelerator, on a device that is open. Throws Error as device_client does, and where ivme was built
// without XLA.
ContextPtr begin_recording(int workers);
// The tensor, which is on xla, belongs to this recording.
void adopt(const at::Tensor& tensor, const ContextPtr& context);

// What this process's xla device runs on: opened at first use, with the workers that begin_recording
// asked for first.
// Throws Error as find_plugin and Client::create do.
std::shared_ptr<Client> device_client();

// Runs all that the context has recorded as one program: trace → lower → compile → run. Nothing when nothing is pending.
// Throws Error when the program cannot be compiled (the recording stays) or when running it fails (the state that was
// donated is lost: the context refuses to go on).
void end_step(const ContextPtr& context);

// Runs what the tensor needs, if it is pending, and copies it. A context's tensor takes all of its recording along.
at::Tensor to_host(const at::Tensor& tensor);
// A copy of a CPU tensor on the device.
Value to_device(const at::Tensor& tensor);

struct Counts {
  int64_t compiles = 0;    // programs compiled by XLA
  int64_t loads = 0;       // programs read from the disk cache
  int64_t executions = 0;  // programs run
  int64_t programs = 0;    // different programs
  int64_t kept = 0;        // bytes that could have been donated but were held by somebody
};
Counts counts();

}  // namespace ivme::xla
