// Stands in for step.cpp where there was no PJRT header to build with. No tensor can be on xla then.
#include "ivme/error.h"
#include "xla/replay/replay.h"
#include "xla/step.h"

namespace ivme::xla {

ContextPtr begin_recording(const RecordingOptions&) {
  throw Error(
      "The device xla was asked for, but this ivme was built without it: there was no pjrt_c_api.h. Install "
      "xla-cpu-pjrt with pip, or run ./dev setup, and build ivme again.");
}
void adopt(const at::Tensor&, const ContextPtr&, std::string) {}
void end_step(const ContextPtr&, Capture*) {}
void flush(const ContextPtr&) {}
void hold(const ContextPtr&, const at::Tensor&) {}
void set_name(const at::Tensor&, std::string) {}
std::string name_of(const at::Tensor&) { return {}; }
bool wants_lines(const ContextPtr&) { return false; }
void run_backward(const std::function<void()>& run) { run(); }
void finish_runs() {}
bool was_read(const at::Tensor&) { return true; }
bool is_pending(const at::Tensor&) { return false; }
bool has_context(const at::Tensor&) { return false; }
Metrics metrics() { return {}; }

struct Capture::Known {};
struct Capture::Lost {};
Capture::Capture(std::shared_ptr<Context>, std::vector<at::Tensor>, std::vector<at::Tensor>,
                 const CapturedStep*) {}
Capture::~Capture() = default;
Capture* Capture::current() { return nullptr; }
void Capture::refuse(std::string) {}
void Capture::note_action(std::function<void()>) {}
void Capture::note_schedule(std::function<void()>) {}
void Capture::begin_action() {}
void Capture::end_action(std::function<void()>) {}
CapturedStep Capture::end(const std::vector<at::Tensor>&) { return {}; }
std::optional<std::vector<at::Tensor>> replay(const CapturedStep&, Context&, const std::vector<at::Tensor>&,
                                              const std::vector<at::Tensor>&) {
  return std::nullopt;
}
bool shares_inputs(const CapturedStep&, const std::vector<at::Tensor>&) { return false; }

}  // namespace ivme::xla
