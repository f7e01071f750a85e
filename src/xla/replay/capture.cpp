#include "xla/replay/capture.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "support/hash.h"
#include "xla/lower/op.h"
#include "xla/step.h"

namespace ivme::xla {

struct Capture::Known {
  WeakStorage storage;
  Value value;  // before the call
};

struct Capture::Lost {
  WeakStorage storage;
  std::string what;
};

namespace {

thread_local Capture* current_capture = nullptr;

LazyStorage* raw(const WeakStorage& storage) { return storage._unsafe_get_target(); }

const Buffer* buffer_of(const Value& value) {
  return value.node->kind == Node::Kind::leaf ? value.node->buffer.get() : nullptr;
}

std::string text_of(const NumberBits& number) {
  switch (number.dtype) {
    case Dtype::f32:
      return c10::str(std::bit_cast<float>(static_cast<uint32_t>(number.bits)));
    case Dtype::f64:
      return c10::str(std::bit_cast<double>(number.bits));
    default:
      return std::to_string(static_cast<int64_t>(number.bits));
  }
}

const Node* user_of(const Graph& graph, const Node* number) {
  for (const Node* node : graph.order)
    for (const Value& operand : node->operands)
      if (operand.node.get() == number) return node;
  return nullptr;
}

bool is_same(const CapturedStep& a, const Place& in_a, const CapturedStep& b, const Place& in_b) {
  if (in_a.kind != in_b.kind) return false;
  return in_a.kind == Place::Kind::storage ? raw(a.storages[in_a.index]) == raw(b.storages[in_b.index])
                                           : in_a.index == in_b.index;
}

bool uses_the_same_tensors(const CapturedStep& a, const CapturedStep& b) {
  auto same = [&](const Place& in_a, const Place& in_b) { return is_same(a, in_a, b, in_b); };
  auto all_same = [&](const std::vector<Place>& in_a, const std::vector<Place>& in_b) {
    return std::ranges::equal(in_a, in_b, same);
  };
  auto same_copy = [&](const CapturedStep::Copy& in_a, const CapturedStep::Copy& in_b) {
    return raw(a.storages[in_a.storage]) == raw(b.storages[in_b.storage]) && same(in_a.from, in_b.from);
  };
  return std::ranges::equal(a.inputs, b.inputs, all_same) && all_same(a.outputs, b.outputs) &&
         std::ranges::equal(a.copies, b.copies, same_copy);
}

}  // namespace

Capture* Capture::current() { return current_capture; }

Capture::Capture(std::shared_ptr<Context> context, std::vector<at::Tensor> arguments,
                 std::vector<at::Tensor> parameters, const CapturedStep* before)
    : context_(std::move(context)),
      arguments_(std::move(arguments)),
      parameters_(std::move(parameters)),
      before_(before),
      outer_(std::exchange(current_capture, this)) {
  static std::atomic<uint64_t> captures{0};
  number_ = ++captures;
  context_->programs.always_want_lines(true);
  auto storages = LazyStorage::all();
  auto values = LazyStorage::values(storages, /*reads=*/false);
  for (size_t i = 0; i < storages.size(); ++i)
    known_.push_back({WeakStorage(storages[i]), std::move(values[i])});
}

Capture::~Capture() {
  current_capture = outer_;
  context_->programs.always_want_lines(false);
}

void Capture::refuse(std::string why) {
  if (step_.refusal.empty()) step_.refusal = std::move(why);
}

void Capture::note_upload(const std::shared_ptr<Node>& leaf, const void* data, size_t bytes) {
  uploads_[leaf.get()] = content_hash(data, bytes);
}

void Capture::note_source(const HostNumber* source) { first_use_.emplace(source, step_.actions.size()); }

void Capture::note_action(std::function<void()> action) { step_.actions.push_back(std::move(action)); }

void Capture::note_schedule(std::function<void()> step) {
  schedules_ = true;
  note_action(std::move(step));
}

void Capture::begin_action() {
  step_.actions.emplace_back();
  in_action_ = true;
}

void Capture::end_action(std::function<void()> action) {
  step_.actions.back() = std::move(action);
  in_action_ = false;
}

size_t Capture::index_of(LazyStorage* storage) {
  auto [it, is_new] = storage_index_.emplace(storage, step_.storages.size());
  if (is_new) step_.storages.emplace_back(StoragePtr::reclaim_copy(storage));
  return it->second;
}

// Of a storage that is alive.
Place Capture::place_of(LazyStorage* storage) {
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (&storage_of(arguments_[i]) == storage) return {Place::Kind::argument, i};
  for (const Known& known : known_)
    if (raw(known.storage) == storage) return {Place::Kind::storage, index_of(storage)};
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const at::Tensor& gradient = parameters_[i].grad();
        gradient.defined() && gradient.device().is_xla() && &storage_of(gradient) == storage)
      return {Place::Kind::gradient, i};
  for (size_t i = 0; i < results_.size(); ++i)
    if (results_[i].defined() && &storage_of(results_[i]) == storage) return {Place::Kind::result, i};
  return {};
}

// Of several tensors that happen to share a buffer in this call, those that were this input in the call
// before.
void Capture::narrow(std::vector<Place>& places, size_t input) const {
  if (places.size() < 2 || !before_ || before_->key != step_.key) return;
  std::vector<Place> kept;
  for (const Place& now : places)
    for (const Place& old : before_->inputs[input])
      if (is_same(step_, now, *before_, old)) kept.push_back(now);
  if (!kept.empty()) places = std::move(kept);
}

void Capture::find_inputs(const Graph& graph) {
  std::unordered_map<const Buffer*, std::vector<const Known*>> holders;
  std::vector<const Node*> floating;
  std::unordered_set<const Node*> used(graph.order.begin(), graph.order.end());
  for (const Known& known : known_) {
    if (const Buffer* buffer = buffer_of(known.value)) {
      holders[buffer].push_back(&known);
    } else if (used.contains(known.value.node.get())) {
      floating.push_back(known.value.node.get());
      if (StoragePtr alive = known.storage.lock())
        step_.floating.emplace_back(index_of(alive.get()), known.value.node);
      else
        refuse("it uses a tensor that was there before the call, and drops it");
    }
  }
  older_ = nodes_under(floating);
  for (const auto& leaf : graph.leaves) {
    std::vector<Place>& places = step_.inputs.emplace_back();
    bool dropped = false;
    if (auto found = holders.find(leaf->buffer.get()); found != holders.end()) {
      for (const Known* known : found->second) {
        StoragePtr alive = known->storage.lock();
        dropped = dropped || !alive;
        if (alive) places.push_back(place_of(alive.get()));
      }
    }
    narrow(places, step_.inputs.size() - 1);
    if (!places.empty()) continue;
    const auto upload = uploads_.find(leaf.get());
    const std::string name = leaf->name ? "'" + *leaf->name + "'" : "a " + to_string(leaf->shapes[0]);
    if (dropped)
      refuse("it uses " + name + ", which was there before the call, and drops it");
    else if (upload == uploads_.end() && !older_.contains(leaf.get()))
      refuse("it uses " + name + ", which was made in the call in a way that cannot be repeated");
    places.push_back({Place::Kind::constant, step_.constants.size()});
    step_.constants.push_back(leaf);
    step_.contents.push_back(upload == uploads_.end() ? 0 : upload->second);
  }
}

void Capture::find_outputs(const Graph& graph, const Pending& pending) {
  step_.aliases = graph.aliases;
  for (size_t i = 0; i < pending.storages.size(); ++i) {
    LazyStorage* storage = pending.storages[i].get();
    Place place = place_of(storage);
    if (place.kind == Place::Kind::gradient && !parameters_[place.index].grad().is_contiguous())
      refuse("a gradient is not laid out as its parameter");
    if (place.kind == Place::Kind::nowhere)
      lost_.push_back({WeakStorage(pending.storages[i]), described_at(*pending.values[i].node)});
    step_.outputs.push_back(place);
  }
}

void Capture::find_copies() {
  std::unordered_map<const Buffer*, StoragePtr> holders;
  for (const Known& known : known_) {
    const Buffer* buffer = buffer_of(known.value);
    if (StoragePtr alive = buffer ? known.storage.lock() : StoragePtr())
      holders.emplace(buffer, std::move(alive));
  }
  for (const Known& known : known_) {
    const Buffer* old = buffer_of(known.value);
    StoragePtr storage = old ? known.storage.lock() : StoragePtr();
    const Buffer* now = storage ? buffer_of(LazyStorage::values({storage}, /*reads=*/false)[0]) : nullptr;
    if (!now || now == old) continue;
    auto from = holders.find(now);
    if (from == holders.end())
      refuse(
          "it copies data of the host, or a tensor that it drops, into one that was there before the call");
    else
      step_.copies.push_back({index_of(storage.get()), place_of(from->second.get())});
  }
}

// A tensor that belongs to no recording is computed when it is needed, so a replay would not change it.
void Capture::refuse_lost_writes(const Pending& pending) {
  std::unordered_set<const LazyStorage*> run;
  for (const StoragePtr& storage : pending.storages) run.insert(storage.get());
  for (const Known& known : known_) {
    StoragePtr storage = known.storage.lock();
    if (!storage || run.contains(storage.get())) continue;
    const Value now = LazyStorage::values({storage}, /*reads=*/false)[0];
    if (now.node != known.value.node && now.node->kind != Node::Kind::leaf)
      refuse("it changes a " + to_string(now.shape()) +
             " that was made on xla from nothing. Make it on the CPU and move it with "
             ".to(accelerator.device())");
  }
}

void Capture::find_numbers(const Graph& graph) {
  step_.number_groups = graph.number_groups;
  std::unordered_map<const HostNumber*, int> indices;
  for (const Node* node : graph.numbers) {
    CapturedStep::Number number{bits_of(*node)};
    if (node->source && !older_.contains(node)) {
      auto [it, is_new] = indices.emplace(node->source.get(), static_cast<int>(step_.sources.size()));
      if (is_new) {
        auto used = first_use_.find(node->source.get());
        step_.sources.push_back({node->source, used == first_use_.end() ? 0 : used->second});
      }
      number.source = it->second;
    }
    step_.numbers.push_back(number);
  }
}

void Capture::find_results() {
  for (const at::Tensor& tensor : results_) {
    CapturedStep::Result& result = step_.results.emplace_back();
    if (!tensor.defined()) continue;
    result = {true, place_of(&storage_of(tensor)), tensor.sizes().vec(), tensor.strides().vec(),
              tensor.storage_offset()};
    if (result.place.kind == Place::Kind::result && std::ranges::count(step_.outputs, result.place) == 0)
      refuse("it returns a tensor that it did not compute on xla");
  }
}

void Capture::compare(const Graph& graph) {
  const CapturedStep& old = *before_;
  if (old.key != step_.key) {
    step_.difference = context_->programs.difference(old.key, step_.key);
    if (step_.difference.ends_with('.')) step_.difference.pop_back();
    return;
  }
  for (size_t i = 0; i < step_.numbers.size(); ++i) {
    const auto &before = old.numbers[i], &now = step_.numbers[i];
    if (now.source >= 0 || before.value.bits == now.value.bits) continue;
    const Node* user = user_of(graph, graph.numbers[i]);
    step_.difference = "a number of " + (user ? described_at(*user) : "it") + " was " +
                       text_of(before.value) + " and is " + text_of(now.value) +
                       ". Pass what changes as ivme::host_scalar(function)";
    return;
  }
  if (old.contents != step_.contents)
    step_.difference =
        "other data are moved to xla in it than in the call before. Pass what changes as an argument";
  else if (old.actions.size() != step_.actions.size())
    step_.difference = "optimizers and schedules make other steps in it than in the call before";
  step_.is_the_same_program = step_.difference.empty();
  if (step_.is_the_same_program && !uses_the_same_tensors(old, step_))
    step_.difference =
        "it uses other tensors than in the call before. Pass what is another tensor in each call as an "
        "argument";
}

void Capture::observe(const Graph& graph, const Pending& pending,
                      const std::shared_ptr<Executable>& executable) {
  if (observed_) refuse("it runs as several programs");
  observed_ = true;
  step_.key = graph.key;
  step_.executable = executable;
  find_inputs(graph);
  find_outputs(graph, pending);
  find_copies();
  refuse_lost_writes(pending);
  find_numbers(graph);
  find_results();
  if (before_) compare(graph);
  known_.clear();  // what it holds could not be donated
}

CapturedStep Capture::end(const std::vector<at::Tensor>& results) {
  results_ = results;
  for (const at::Tensor& result : results_) {
    if (!result.defined()) continue;
    if (!result.device().is_xla())
      refuse("it returns a tensor on " + result.device().str() + ". Return it as it is on xla");
    else if (!storage_of(result).context())
      adopt(result, context_, "a result of the step");
  }
  if (step_.refusal.empty()) {
    end_step(context_, this);
  } else {
    known_.clear();
    end_step(context_);
  }
  if (!observed_) refuse("it has nothing to run on xla");
  if (step_.refusal.empty()) check_escapes(results);
  return std::move(step_);
}

// What the call made must have died or have a place. Autograd's thread may hold a tensor for a moment longer.
void Capture::check_escapes(const std::vector<at::Tensor>& results) {
  std::unordered_map<const LazyStorage*, size_t> held;
  for (const at::Tensor& result : results)
    if (result.defined()) ++held[&storage_of(result)];
  auto escaped = [&]() -> std::string {
    for (const Lost& lost : lost_)
      if (lost.storage.use_count() > 0) return "the result of " + lost.what;
    for (const StoragePtr& storage : LazyStorage::all()) {
      if (storage->made_in() != number_) continue;
      const Place place = place_of(storage.get());
      const std::string what = "a " + to_string(storage->value().shape());
      if (place.kind == Place::Kind::nowhere) return what;
      if (place.kind == Place::Kind::result && storage.use_count() > held[storage.get()] + 1)
        return what + " that it returns";
    }
    return "";
  };
  std::string what = escaped();
  for (int i = 0; i < 20 && !what.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    what = escaped();
  }
  if (!what.empty())
    refuse(what +
           " is kept by the program. In a replay no such tensor is made: return it, or write into a tensor "
           "that was there before");
}

}  // namespace ivme::xla
