#include "xla/step.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "ivme/error.h"
#include "xla/lower/program.h"
#include "xla/run/buffer.h"
#include "xla/run/execute.h"
#include "xla/trace/record.h"

namespace ivme::xla {
namespace {

struct Device {
  std::mutex mutex;
  std::shared_ptr<Client> client;
  int workers = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Executable>> programs;
  std::atomic<int64_t> executions{0}, kept{0};
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

std::shared_ptr<Executable> executable_of(const Graph& graph) {
  auto client = device_client();
  Device& here = device();
  std::lock_guard lock(here.mutex);
  auto& program = here.programs[graph.key];
  if (!program) program = client->compile(lower(graph));
  return program;
}

// --- run ---------------------------------------------------------------------------------------------------

// The leaves' buffers, then the numbers.
std::vector<std::shared_ptr<Buffer>> inputs_of(const Graph& graph) {
  std::vector<std::shared_ptr<Buffer>> inputs;
  for (const auto& leaf : graph.leaves) {
    if (!leaf->buffer)
      throw Error("A tensor on xla was used whose value was lost: the execution that should have made it failed. "
                  "Start again from a checkpoint.");
    inputs.push_back(leaf->buffer);
  }
  for (const PackedNumbers& pack : pack_numbers(graph))
    inputs.push_back(upload(device_client(), pack.bytes.data(), pack.shape));
  return inputs;
}

// What a root may take and nobody else holds: the graph has ended, so a buffer that is still held elsewhere has
// another owner (a saved tensor, a copy that shares it).
std::vector<bool> donations(const std::vector<std::shared_ptr<Buffer>>& inputs, const std::vector<int>& aliases) {
  std::vector<bool> donated(inputs.size());
  for (int leaf : aliases) {
    if (leaf < 0) continue;
    const auto& buffer = inputs[static_cast<size_t>(leaf)];
    donated[static_cast<size_t>(leaf)] = buffer.use_count() == 1;
    if (buffer.use_count() > 1) device().kept += buffer->bytes();
  }
  return donated;
}

void run(Pending pending) {
  Graph graph = trace(pending);
  auto executable = executable_of(graph);
  auto inputs = inputs_of(graph);
  auto aliases = std::move(graph.aliases);
  std::vector<std::shared_ptr<Node>> leaves;
  for (const Value& value : pending.values) leaves.push_back(make_leaf(nullptr, value.shape()));
  settle(pending, leaves);
  pending = {};
  graph = {};
  ++device().executions;
  auto outputs = execute(*executable, inputs, donations(inputs, aliases));
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i]->buffer = std::move(outputs[i]);
}

// A view is cut out on the host: that needs no program.
at::Tensor download(const at::Tensor& tensor, const Node& leaf) {
  if (!leaf.buffer)
    throw Error("A tensor on xla was read whose value was lost: the execution that should have made it failed. Start "
                "again from a checkpoint.");
  const Shape& shape = leaf.shapes[0];
  auto memory = at::empty(shape.dims, at::TensorOptions().dtype(scalar_type_of(shape.dtype)));
  leaf.buffer->download(memory.mutable_data_ptr(), shape.bytes());
  return memory.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

}  // namespace

std::shared_ptr<Client> device_client() {
  Device& here = device();
  std::lock_guard lock(here.mutex);
  if (!here.client) here.client = Client::create(find_plugin(), {.cpu_devices = here.workers});
  return here.client;
}

ContextPtr begin_recording(int workers) {
  register_kernels();
  register_device_guard();
  {
    std::lock_guard lock(device().mutex);
    device().workers = workers;
  }
  device_client();
  return std::make_shared<Context>();
}

void adopt(const at::Tensor& tensor, const ContextPtr& context) { storage_of(tensor).adopt(context); }

void end_step(const ContextPtr& context) {
  Pending pending = pending_of(context);
  if (!pending.storages.empty()) run(std::move(pending));
}

at::Tensor to_host(const at::Tensor& tensor) {
  const LazyStorage& storage = storage_of(tensor);
  Value value = storage.value();
  if (value.node->kind != Node::Kind::leaf) {
    value = {};
    run(pending_of(storage.context(), &storage));
    value = storage.value();
  }
  return download(tensor, *value.node);
}

Value to_device(const at::Tensor& tensor) {
  at::Tensor data = tensor.contiguous();
  Shape shape = shape_of(data);
  return {make_leaf(upload(device_client(), data.const_data_ptr(), shape), shape)};
}

Counts counts() {
  Device& here = device();
  std::lock_guard lock(here.mutex);
  Counts counts;
  if (here.client) counts = {.compiles = here.client->compiled(), .loads = here.client->loaded()};
  counts.executions = here.executions;
  counts.programs = static_cast<int64_t>(here.programs.size());
  counts.kept = here.kept;
  return counts;
}

}  // namespace ivme::xla
