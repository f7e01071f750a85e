#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <memory>
#include <string>

#include "ivme/xla.h"
#include "xla/compile/client.h"
#include "xla/trace/storage.h"

namespace ivme::xla {

struct RecordingOptions {
  int workers = 1;
  bool tpu = false;           // a TPU, or what PJRT_DEVICE names instead; nothing else will do
  int expected_programs = 1;  // that update state and need no explanation
  int64_t max_programs = 0;   // more of all kinds throw; 0: any number
};
// A recording for an Accelerator, on a device that is open. Throws Error as device_client does, and where
// ivme was built without XLA.
ContextPtr begin_recording(const RecordingOptions& options);
// The recording that a random operation counts in: its own, else that of the Accelerator made last.
ContextPtr random_context(ContextPtr own);
// A seed has been set, the same one perhaps: counting starts again. How often that was.
void note_seeding();
uint64_t seedings();
// An operator is computed on the CPU instead; said once for each.
void note_fallback(const std::string& name);
// The tensor, which is on xla, belongs to this recording, and is called `name` in messages.
void adopt(const at::Tensor& tensor, const ContextPtr& context, std::string name);

// What this process's xla device runs on: opened at first use, as begin_recording asked for it first. Throws
// Error as find_plugin and Client::create do.
std::shared_ptr<Client> device_client();

// Ends a step: runs all that the context has recorded as one program, trace → lower → compile → run, if there
// is anything. Throws Error when the program cannot be compiled (the recording stays) or when running it
// fails (the state that was donated is lost: the context refuses to go on).
void end_step(const ContextPtr& context);

// Whether the tensor is on xla and its value is still to be run.
bool is_pending(const at::Tensor& tensor);
// Runs what the tensor needs, if it is pending, and copies it. A context's tensor takes all of its recording
// along.
at::Tensor to_host(const at::Tensor& tensor);
// A copy of a CPU tensor on the device.
Value to_device(const at::Tensor& tensor);

}  // namespace ivme::xla
