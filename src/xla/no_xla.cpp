// Stands in for step.cpp where there was no PJRT header to build with. No tensor can be on xla then.
#include "ivme/error.h"
#include "xla/step.h"

namespace ivme::xla {

ContextPtr begin_recording(const RecordingOptions&) {
  throw Error(
      "The device xla was asked for, but this ivme was built without it: there was no pjrt_c_api.h. Install "
      "xla-cpu-pjrt with pip, or run ./dev setup, and build ivme again.");
}
void adopt(const at::Tensor&, const ContextPtr&, std::string) {}
void end_step(const ContextPtr&) {}
void note_seeding() {}
bool is_pending(const at::Tensor&) { return false; }
Metrics metrics() { return {}; }

}  // namespace ivme::xla
