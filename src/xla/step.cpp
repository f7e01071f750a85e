#include "xla/step.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "ivme/error.h"
#include "process/environment.h"
#include "xla/lower/program.h"
#include "xla/replay/capture.h"
#include "xla/run/buffer.h"
#include "xla/run/execute.h"
#include "xla/trace/origin.h"
#include "xla/trace/record.h"

namespace ivme::xla {
namespace {

struct Device {
  std::mutex mutex;
  std::shared_ptr<Client> client;
  int workers = 1;
  bool tpu = false;  // nothing else will do
  std::atomic<int64_t> executions{0}, replays{0}, kept{0};
  std::atomic<int64_t> fallbacks{0};
  std::set<std::string> told_fallbacks;
  std::weak_ptr<Context> newest;
  ContextPtr of_nobody = std::make_shared<Context>();
};
Device& device() {
  static auto* one = new Device;  // tensors may outlive static objects
  return *one;
}

// --- trace -------------------------------------------------------------------------------------------------

Graph trace(const Pending& pending) {
  std::vector<const Buffer*> memory;
  for (const auto& leaf : pending.before) memory.push_back(leaf ? leaf->buffer.get() : nullptr);
  return make_graph(pending.values, memory);
}

// --- lower, compile ----------------------------------------------------------------------------------------

std::shared_ptr<Executable> executable_of(const Graph& graph, Context* context) {
  if (context) context->programs.note(graph);
  auto [executable, cost] = compiled(graph, *device_client());
  if (context) context->programs.explain_new(cost);
  return executable;
}

// IVME_XLA_METRICS=1: one line when the program ends.
void print_metrics() {
  const Metrics m = metrics();
  std::fprintf(stderr,
               "ivme xla: compiles=%" PRId64 " executions=%" PRId64 " cache_hits=%" PRId64
               " programs=%" PRId64 " replays=%" PRId64 " fallbacks=%" PRId64 " kept_bytes=%" PRId64
               " live_buffers=%" PRId64 "\n",
               m.compiles, m.executions, m.cache_hits, m.programs, m.replays, m.fallbacks, m.kept_bytes,
               m.live_buffers);
}

// --- run ---------------------------------------------------------------------------------------------------

// The leaves' buffers, then the numbers.
std::vector<std::shared_ptr<Buffer>> inputs_of(const Graph& graph) {
  std::vector<std::shared_ptr<Buffer>> inputs;
  for (const auto& leaf : graph.leaves) inputs.push_back(buffer_of(*leaf));
  upload_numbers(pack_numbers(graph), inputs);
  return inputs;
}

// What a root may take and nobody else holds: the graph has ended, so a buffer that is still held elsewhere
// has another owner (a saved tensor, a copy that shares it).
std::vector<bool> donations(const std::vector<std::shared_ptr<Buffer>>& inputs,
                            const std::vector<int>& aliases) {
  std::vector<bool> donated(inputs.size());
  for (int leaf : aliases) {
    if (leaf < 0) continue;
    const auto& buffer = inputs[static_cast<size_t>(leaf)];
    donated[static_cast<size_t>(leaf)] = buffer.use_count() == 1;
    if (buffer.use_count() > 1) device().kept += buffer->bytes();
  }
  return donated;
}

void refuse_after_failure(const Context* context) {
  if (context && !context->failure.empty())
    throw Error(
        "The step cannot go on: the execution of one before it failed, and the state that it was updating is "
        "lost. Start again from a checkpoint. The failure was: " +
        context->failure);
}

// Remembers a failure that costs the context's state.
template <class Call>
auto fatal_to(Context* context, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    if (context && context->failure.empty()) context->failure = error.what();
    throw;
  }
}

void run(Pending pending, Context* context, Capture* capture = nullptr) {
  refuse_after_failure(context);
  Graph graph = trace(pending);
  auto executable = executable_of(graph, context);
  if (capture) capture->observe(graph, pending, executable);
  auto inputs = inputs_of(graph);
  auto aliases = std::move(graph.aliases);
  std::vector<std::shared_ptr<Node>> leaves;
  for (const Value& value : pending.values) leaves.push_back(make_leaf(nullptr, value.shape()));
  settle(pending, leaves);
  pending = {};
  graph = {};
  auto outputs = start(context, *executable, std::move(inputs), aliases);
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i]->buffer = std::move(outputs[i]);
}

std::atomic<bool> told_of_a_cut{false};

void tell_of_a_cut(CallSite at) {
  if (told_of_a_cut.exchange(true)) return;
  const std::string line = at.text();
  std::fprintf(stderr,
               "ivme: %s%sa value on xla was read in the middle of a step, so the step ran as two programs. "
               "Read the loss and the like after optimizer.step(); said once.\n",
               line.c_str(), line.empty() ? "" : ": ");
}

// A view is cut out on the host: that needs no program.
at::Tensor download(const at::Tensor& tensor, const Node& leaf) {
  const Shape& shape = leaf.shapes[0];
  auto memory = at::empty(shape.dims, at::TensorOptions().dtype(scalar_type_of(shape.dtype)));
  buffer_of(leaf)->download(memory.mutable_data_ptr(), shape.bytes());
  return memory.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

}  // namespace

std::shared_ptr<Client> device_client() {
  Device& here = device();
  std::lock_guard lock(here.mutex);
  if (here.client) return here.client;
  PluginSearch where = plugin_search();
  if (here.tpu)
    where.read = [read = where.read](const std::string& name) {
      auto value = read(name);
      return name == "PJRT_DEVICE" && !value ? "TPU" : value;
    };
  here.client = Client::create(find_plugin(where), {.cpu_devices = here.workers});
  std::atexit(finish_runs);
  return here.client;
}

void finish_runs() {
  std::shared_ptr<Client> client;
  {
    std::lock_guard lock(device().mutex);
    client = device().client;
  }
  if (client) client->finish();
}

ContextPtr begin_recording(const RecordingOptions& options) {
  register_kernels();
  register_composites();
  register_random();
  register_recurrent();
  register_autocast();
  register_device_guard();
  static const bool told = read_environment("IVME_XLA_METRICS") == "1" && std::atexit(print_metrics) == 0;
  static_cast<void>(told);
  {
    std::lock_guard lock(device().mutex);
    device().workers = options.workers;
    device().tpu = options.tpu;
  }
  device_client();
  auto context = std::make_shared<Context>();
  context->programs = ProgramsOfLoop(options.expected_programs, options.max_programs);
  std::lock_guard lock(device().mutex);
  device().newest = context;
  return context;
}

ContextPtr random_context(ContextPtr own) {
  if (own) return own;
  std::lock_guard lock(device().mutex);
  if (auto newest = device().newest.lock()) return newest;
  return device().of_nobody;
}

void note_fallback(const std::string& name) {
  ++device().fallbacks;
  std::lock_guard lock(device().mutex);
  if (device().told_fallbacks.insert(name).second)
    std::fprintf(stderr,
                 "ivme: %s%s is computed on the CPU, as IVME_XLA_CPU_FALLBACK asks; each call cuts the "
                 "step.\n",
                 name.c_str(), origin().where().c_str());
}

void adopt(const at::Tensor& tensor, const ContextPtr& context, std::string name) {
  storage_of(tensor).adopt(context, std::move(name));
}

bool has_context(const at::Tensor& tensor) { return storage_of(tensor).context() != nullptr; }

void set_name(const at::Tensor& tensor, std::string name) { storage_of(tensor).set_name(std::move(name)); }
std::string name_of(const at::Tensor& tensor) {
  return tensor.device().is_xla() ? storage_of(tensor).name() : std::string();
}

bool wants_lines(const ContextPtr& context) { return context && context->programs.wants_lines(); }

void hold(const ContextPtr& context, const at::Tensor& tensor) {
  if (tensor.device().is_xla()) context->held.push_back(tensor.detach());
}

void end_step(const ContextPtr& context, Capture* capture) {
  refuse_after_failure(context.get());
  Pending pending = pending_of(context);
  const bool was_cut = std::exchange(context->was_cut, false);
  const bool counts = was_cut || !pending.storages.empty() || context->position > 0;
  if (was_cut && !pending.storages.empty()) tell_of_a_cut(context->cut_at);
  if (!pending.storages.empty()) run(std::move(pending), context.get(), capture);
  context->held.clear();
  if (counts) context->next_step();
}

void flush(const ContextPtr& context) {
  refuse_after_failure(context.get());
  Pending pending = pending_of(context);
  if (!pending.storages.empty()) run(std::move(pending), context.get());
}

const std::shared_ptr<Buffer>& buffer_of(const Node& leaf) {
  if (!leaf.buffer)
    throw Error(
        "A tensor on xla was used whose value was lost: the execution that should have made it failed. "
        "Start again from a checkpoint.");
  return leaf.buffer;
}

void upload_numbers(const std::vector<PackedNumbers>& packs, std::vector<std::shared_ptr<Buffer>>& inputs) {
  std::vector<std::pair<const PackedNumbers*, std::shared_ptr<Buffer>>> uploaded;
  for (const PackedNumbers& pack : packs) {
    auto equal = std::ranges::find_if(uploaded, [&](const auto& one) {
      return one.first->bytes == pack.bytes && one.first->shape == pack.shape;
    });
    if (equal == uploaded.end())
      equal = uploaded.emplace(equal, &pack, upload(device_client(), pack.bytes.data(), pack.shape));
    inputs.push_back(equal->second);
  }
}

std::vector<std::shared_ptr<Buffer>> start(Context* context, const Executable& executable,
                                           std::vector<std::shared_ptr<Buffer>> inputs,
                                           const std::vector<int>& aliases) {
  ++device().executions;
  return fatal_to(context, [&] { return execute(executable, inputs, donations(inputs, aliases)); });
}

void count_replay(Context& context) {
  ++device().replays;
  context.next_step();
}

bool was_read(const at::Tensor& tensor) { return storage_of(tensor).was_read(); }

bool is_pending(const at::Tensor& tensor) {
  return tensor.device().is_xla() && storage_of(tensor).value().node->kind != Node::Kind::leaf;
}

at::Tensor to_host(const at::Tensor& tensor) {
  const LazyStorage& storage = storage_of(tensor);
  if (Capture* capture = Capture::current())
    capture->refuse("it reads a value on the host" + CallSite::here().where());
  Value value = storage.value();
  const ContextPtr context = storage.context();
  if (value.node->kind != Node::Kind::leaf) {
    value = {};
    if (context && !context->was_cut && !told_of_a_cut) context->cut_at = origin();
    run(pending_of(context, &storage), context.get());
    if (context) context->was_cut = true;
    value = storage.value();
  }
  if (!value.node->buffer) refuse_after_failure(context.get());
  return fatal_to(context.get(), [&] { return download(tensor, *value.node); });
}

Value to_device(const at::Tensor& tensor) {
  at::Tensor data = tensor.contiguous();
  Shape shape = shape_of(data);
  Value value{make_leaf(upload(device_client(), data.const_data_ptr(), shape), shape)};
  if (Capture* capture = Capture::current())
    capture->note_upload(value.node, data.const_data_ptr(), static_cast<size_t>(shape.bytes()));
  return value;
}

Metrics metrics() {
  Device& here = device();
  std::lock_guard lock(here.mutex);
  Metrics now;
  if (here.client)
    now = {.compiles = here.client->compiled(),
           .cache_hits = here.client->loaded(),
           .live_buffers = here.client->live_buffers(),
           .live_bytes = here.client->live_bytes()};
  now.programs = count_programs();
  now.executions = here.executions;
  now.replays = here.replays;
  now.kept_bytes = here.kept;
  now.fallbacks = here.fallbacks;
  return now;
}

}  // namespace ivme::xla
