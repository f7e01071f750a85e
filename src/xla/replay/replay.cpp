#include "xla/replay/replay.h"

#include <bit>
#include <unordered_set>

#include "xla/run/buffer.h"
#include "xla/step.h"

namespace ivme::xla {
namespace {

// What is at the places of a step, in this call.
class Tensors {
 public:
  Tensors(const CapturedStep& step, const std::vector<at::Tensor>& arguments) : step_(step) {
    storages_.reserve(step.storages.size() + arguments.size());
    for (const WeakStorage& weak : step.storages) {
      storages_.push_back(weak.lock());
      if (!storages_.back()) complete_ = false;
    }
    for (const at::Tensor& argument : arguments)
      storages_.push_back(StoragePtr::reclaim_copy(&storage_of(argument)));
    if (complete_) values_ = LazyStorage::values(storages_, /*reads=*/true);
  }

  // Nothing is gone, and what floated then floats unchanged.
  bool is_complete() const {
    if (!complete_) return false;
    for (const auto& [index, node] : step_.floating)
      if (values_[index].node != node) return false;
    return true;
  }

  LazyStorage* storage(const Place& place) const { return storages_[position(place)].get(); }

  // The leaf that all of the places have in common, or null.
  const Node* leaf(const std::vector<Place>& places) const {
    const Node* first = node(places[0]);
    if (first->kind != Node::Kind::leaf) return nullptr;
    for (size_t i = 1; i < places.size(); ++i)
      if (node(places[i])->buffer != first->buffer) return nullptr;
    return first;
  }
  const std::shared_ptr<Node>& shared_node(const Place& place) const { return values_[position(place)].node; }
  // The leaf at the place, to be filled anew, if nobody but its storage holds it; else null.
  std::shared_ptr<Node> reused_leaf(const Place& place, const Shape& shape) const {
    const std::shared_ptr<Node>& node = shared_node(place);
    if (node.use_count() > 2 || node->kind != Node::Kind::leaf || node->shapes[0] != shape) return nullptr;
    node->buffer.reset();
    return node;
  }

  // Lets go of the values, so that what the results replace can be donated.
  void forget_values() { values_.clear(); }

 private:
  const Node* node(const Place& place) const {
    return place.kind == Place::Kind::constant ? step_.constants[place.index].get()
                                               : values_[position(place)].node.get();
  }
  size_t position(const Place& place) const {
    return place.kind == Place::Kind::argument ? step_.storages.size() + place.index : place.index;
  }

  const CapturedStep& step_;
  std::vector<StoragePtr> storages_;  // those of the step, then the arguments'
  std::vector<Value> values_;
  bool complete_ = true;
};

uint64_t bits_of(std::variant<double, int64_t> value, Dtype dtype) {
  const double* real = std::get_if<double>(&value);
  if (dtype == Dtype::i64)
    return static_cast<uint64_t>(real ? static_cast<int64_t>(*real) : std::get<int64_t>(value));
  const double number = real ? *real : static_cast<double>(std::get<int64_t>(value));
  return dtype == Dtype::f32 ? std::bit_cast<uint32_t>(static_cast<float>(number))
                             : std::bit_cast<uint64_t>(number);
}

// The host's part: its actions, and after each the numbers that were used there.
std::vector<NumberBits> do_the_hosts_part(const CapturedStep& step) {
  std::vector<std::variant<double, int64_t>> answers(step.sources.size());
  for (size_t done = 0; done <= step.actions.size(); ++done) {
    if (done > 0 && step.actions[done - 1]) step.actions[done - 1]();
    for (size_t i = 0; i < answers.size(); ++i)
      if (step.sources[i].after == done) answers[i] = (*step.sources[i].number)();
  }
  std::vector<NumberBits> numbers;
  numbers.reserve(step.numbers.size());
  for (const auto& [value, source] : step.numbers)
    numbers.push_back(
        source < 0 ? value
                   : NumberBits{value.dtype, bits_of(answers[static_cast<size_t>(source)], value.dtype)});
  return numbers;
}

at::Tensor view_of(StoragePtr storage, const CapturedStep::Result& result) {
  const Dtype dtype = storage->value().shape().dtype;
  auto tensor = make_tensor(std::move(storage), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides, result.offset);
  return tensor;
}

std::optional<std::vector<const Node*>> leaves_of(const CapturedStep& step, const Tensors& tensors) {
  std::vector<const Node*> leaves;
  leaves.reserve(step.inputs.size());
  for (const auto& places : step.inputs) {
    leaves.push_back(tensors.leaf(places));
    if (!leaves.back()) return std::nullopt;
  }
  return leaves;
}

}  // namespace

std::optional<std::vector<at::Tensor>> replay(const CapturedStep& step, Context& context,
                                              const std::vector<at::Tensor>& arguments,
                                              const std::vector<at::Tensor>& parameters) {
  Tensors tensors(step, arguments);
  if (!tensors.is_complete()) return std::nullopt;
  auto leaves = leaves_of(step, tensors);
  if (!leaves) return std::nullopt;
  std::vector<std::shared_ptr<Buffer>> inputs;
  inputs.reserve(leaves->size() + 3);
  for (const Node* leaf : *leaves) inputs.push_back(buffer_of(*leaf));
  upload_numbers(pack_numbers(do_the_hosts_part(step), step.number_groups), inputs);

  std::vector<std::pair<LazyStorage*, std::shared_ptr<Node>>> written;
  written.reserve(step.outputs.size() + step.copies.size());
  for (const auto& copy : step.copies)
    written.emplace_back(tensors.storage({Place::Kind::storage, copy.storage}),
                         tensors.shared_node(copy.from));
  std::vector<StoragePtr> made(step.results.size());  // by the place of the result
  std::vector<std::shared_ptr<Node>> outputs;
  outputs.reserve(step.outputs.size());
  const std::vector<Shape>& shapes = step.executable->signature().results;
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const Place& place = step.outputs[i];
    const bool is_there = place.kind == Place::Kind::argument || place.kind == Place::Kind::storage;
    if (auto leaf = is_there ? tensors.reused_leaf(place, shapes[i]) : nullptr) {
      outputs.push_back(std::move(leaf));
      continue;
    }
    outputs.push_back(make_leaf(nullptr, shapes[i]));
    if (is_there)
      written.emplace_back(tensors.storage(place), outputs.back());
    else if (place.kind == Place::Kind::gradient)
      parameters[place.index].mutable_grad() = make_tensor({outputs.back()}, context.shared_from_this());
    else if (place.kind == Place::Kind::result)
      made[place.index] = c10::make_intrusive<LazyStorage>(Value{outputs.back()}, context.shared_from_this());
  }
  LazyStorage::set_values(written);
  tensors.forget_values();
  auto buffers = start(&context, *step.executable, std::move(inputs), step.aliases);
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->buffer = std::move(buffers[i]);
  count_replay(context);

  std::vector<at::Tensor> results;
  for (const auto& result : step.results) {
    if (!result.defined)
      results.emplace_back();
    else if (result.place.kind == Place::Kind::result)
      results.push_back(view_of(made[result.place.index], result));
    else if (result.place.kind == Place::Kind::gradient)
      results.push_back(parameters[result.place.index].grad().detach());
    else
      results.push_back(view_of(StoragePtr::reclaim_copy(tensors.storage(result.place)), result));
  }
  return results;
}

bool shares_inputs(const CapturedStep& step, const std::vector<at::Tensor>& arguments) {
  Tensors tensors(step, arguments);
  auto leaves = tensors.is_complete() ? leaves_of(step, tensors) : std::nullopt;
  if (!leaves) return false;
  std::unordered_set<const Buffer*> different;
  for (const Node* leaf : *leaves) different.insert(leaf->buffer.get());
  return different.size() < leaves->size();
}

}  // namespace ivme::xla
