#include "xla/trace/origin.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <mutex>
#include <string>

#include "xla/step.h"

namespace ivme::xla {
namespace {

constexpr size_t most_calls = 1 << 20;

// The calls of forward operations, by thread and number of the autograd node that each made there.
struct Calls {
  using Key = std::pair<uint64_t, uint64_t>;
  std::mutex mutex;
  std::map<Key, CallSite> by_node;
  CallSite backward;  // the call of backward that is under way
};
Calls& calls() {
  static auto* one = new Calls;
  return *one;
}

CallSite call_of_backward() {
  std::lock_guard lock(calls().mutex);
  return calls().backward;
}

// Autograd makes an operation's node before it calls the operation. Of several operations without a node in
// between the first is the one that has it.
void note_forward(CallSite site) {
  const uint64_t next = at::sequence_number::peek();
  if (!c10::GradMode::is_enabled() || next == 0) return;
  Calls& all = calls();
  std::lock_guard lock(all.mutex);
  if (all.by_node.size() >= most_calls) all.by_node.clear();
  all.by_node.try_emplace({at::RecordFunction::currentThreadId(), next - 1}, site);
}

// A view records nothing, but what is recorded next is most often what it was made for.
CallSite forward_of(const torch::autograd::Node& node) {
  Calls& all = calls();
  std::lock_guard lock(all.mutex);
  const auto found = all.by_node.lower_bound({node.thread_id(), node.sequence_nr()});
  const bool is_its = found != all.by_node.end() && found->first.first == node.thread_id();
  return is_its ? found->second : CallSite();
}

}  // namespace

CallSite origin() {
  const auto node = torch::autograd::get_current_node();
  CallSite forward;
  if (node) forward = forward_of(*node);
  if (!forward) forward = call_of_backward();
  const CallSite site = forward ? CallSite::in_backward_of(forward) : CallSite::here();
  note_forward(site);
  return site;
}

std::optional<bool> wants_lines(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_xla()) return {};
  const ContextPtr context = storage_of(tensor).context();
  return context ? std::optional(context->programs.wants_lines()) : std::nullopt;
}

void throw_at_line(const Error& error) {
  std::string line = SiteOfNodes::current().text();
  if (line.empty()) line = origin().text();
  if (line.empty()) throw error;
  throw ErrorAtLine(line + ": " + error.what());
}

void run_backward(const std::function<void()>& run) {
  if (!WantOfLines::any()) return with_line(run);
  struct Scope {
    CallSite before;
    Scope() { set(CallSite::here()); }
    ~Scope() { set(before); }
    void set(CallSite site) {
      std::lock_guard lock(calls().mutex);
      before = std::exchange(calls().backward, site);
    }
  } scope;
  with_line(run);
}

}  // namespace ivme::xla
