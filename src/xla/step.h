#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ivme/xla.h"
#include "xla/compile/client.h"
#include "xla/lower/program.h"
#include "xla/trace/storage.h"

namespace ivme::xla {

class Capture;

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
// An operator is computed on the CPU instead; said once for each.
void note_fallback(const std::string& name);
// The tensor, which is on xla, belongs to this recording, and is called `name` in messages.
void adopt(const at::Tensor& tensor, const ContextPtr& context, std::string name);
// What messages call a tensor on xla; "" where nobody said.
void set_name(const at::Tensor& tensor, std::string name);
std::string name_of(const at::Tensor& tensor);
// Whether the recording takes the lines of what it records now: while its programs are new. Names are wanted
// then, too.
bool wants_lines(const ContextPtr& context);
// Runs a backward pass. What it records without a forward operation of its own belongs to this call, and so
// do errors that know no better. For the user's thread.
void run_backward(const std::function<void()>& run);

// Whether the tensor, which is on xla, belongs to a recording.
bool has_context(const at::Tensor& tensor);

// What this process's xla device runs on: opened at first use, as begin_recording asked for it first. Throws
// Error as find_plugin and Client::create do.
std::shared_ptr<Client> device_client();

// The tensor is a result of the present step in any case, so that it does not matter for the program how long
// the loop holds it.
void hold(const ContextPtr& context, const at::Tensor& tensor);

// Ends a step: runs all that the context has recorded as one program, trace → lower → compile → run, if there
// is anything. Throws Error when the program cannot be compiled (the recording stays) or when running it
// fails (the state that was donated is lost: the context refuses to go on).
// A step in which nothing was recorded or read does not count. `capture` observes the program.
void end_step(const ContextPtr& context, Capture* capture = nullptr);
// Runs what the context has recorded, as a program of its own that is no step.
void flush(const ContextPtr& context);

// The pieces of a run, for replays. The leaf's buffer; throws Error when its value was lost.
const std::shared_ptr<Buffer>& buffer_of(const Node& leaf);
// Those that are equal, as for all parameters of one optimizer, share an array.
void upload_numbers(const std::vector<PackedNumbers>& packs, std::vector<std::shared_ptr<Buffer>>& inputs);
// Donates the inputs that `aliases` names (Graph::aliases) and that nobody else holds. A failure is the end
// of the context, which may be null.
std::vector<std::shared_ptr<Buffer>> start(Context* context, const Executable& executable,
                                           std::vector<std::shared_ptr<Buffer>> inputs,
                                           const std::vector<int>& aliases);
void count_replay(Context& context);  // as a step

// Waits for all programs that were started: a plugin must not be computing when the process ends.
void finish_runs();

// Whether anything has used the value of a tensor on xla: an operation, a copy, the host.
bool was_read(const at::Tensor& tensor);
// Whether the tensor is on xla and its value is still to be run.
bool is_pending(const at::Tensor& tensor);
// Runs what the tensor needs, if it is pending, and copies it. A context's tensor takes all of its recording
// along.
at::Tensor to_host(const at::Tensor& tensor);
// A copy of a CPU tensor on the device.
Value to_device(const at::Tensor& tensor);

}  // namespace ivme::xla
