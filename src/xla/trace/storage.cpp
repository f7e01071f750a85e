#include "xla/trace/storage.h"

#include <mutex>
#include <unordered_set>

#include "ivme/error.h"
#include "xla/replay/capture.h"
#include "xla/trace/arguments.h"

namespace ivme::xla {
namespace {

struct List {
  LazyStorage* first = nullptr;
  LazyStorage* last = nullptr;

  template <class Links>
  void append(LazyStorage* storage, Links LazyStorage::* links) {
    (storage->*links) = {last, nullptr};
    (last ? (last->*links).next : first) = storage;
    last = storage;
  }
  template <class Links>
  void remove(LazyStorage* storage, Links LazyStorage::* links) {
    const Links& here = storage->*links;
    (here.previous ? (here.previous->*links).next : first) = here.next;
    (here.next ? (here.next->*links).previous : last) = here.previous;
  }
};
struct Lists {
  std::mutex mutex;
  List pending;  // in the order in which they became so
  List all;
};
Lists& lists() {
  static auto* one = new Lists;  // storages may outlive static objects
  return *one;
}

// Null while the storage is being destroyed by another thread.
StoragePtr lock(LazyStorage* storage) {
  LazyStorage* alive = c10::raw::weak_intrusive_ptr::lock(storage);
  return alive ? StoragePtr::reclaim(alive) : StoragePtr();
}

bool is_pending(const Value& value) { return value.node->kind != Node::Kind::leaf; }

size_t bytes_of(const Value& value) { return static_cast<size_t>(value.shape().bytes()); }

// The storage's memory, seen whole and in order.
bool covers(const at::Tensor& tensor, const Shape& memory) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() && tensor.numel() == memory.count();
}

}  // namespace

LazyStorage::LazyStorage(Value value, ContextPtr context)
    : c10::StorageImpl(use_byte_size_t{}, bytes_of(value), at::DataPtr(nullptr, at::Device(at::kXLA, 0)),
                       nullptr,
                       /*resizable=*/false),
      value_(std::move(value)),
      context_(std::move(context)) {
  set_throw_on_mutable_data_ptr();
  if (const Capture* capture = Capture::current()) made_in_ = capture->number();
  std::lock_guard lock(lists().mutex);
  lists().all.append(this, &LazyStorage::all_);
  list_if_pending();
}

LazyStorage::~LazyStorage() {
  std::lock_guard lock(lists().mutex);
  lists().all.remove(this, &LazyStorage::all_);
  unlist();
}

void LazyStorage::list_if_pending() {
  if (listed_ || !is_pending(value_)) return;
  lists().pending.append(this, &LazyStorage::pending_);
  listed_ = true;
}

void LazyStorage::unlist() {
  if (!listed_) return;
  lists().pending.remove(this, &LazyStorage::pending_);
  listed_ = false;
}

std::vector<StoragePtr> LazyStorage::all() {
  std::vector<StoragePtr> storages;
  std::lock_guard guard(lists().mutex);
  for (LazyStorage* storage = lists().all.first; storage; storage = storage->all_.next)
    if (StoragePtr alive = xla::lock(storage)) storages.push_back(std::move(alive));
  return storages;
}

std::vector<Value> LazyStorage::values(const std::vector<StoragePtr>& storages, bool reads) {
  std::vector<Value> values;
  values.reserve(storages.size());
  std::lock_guard guard(lists().mutex);
  for (const StoragePtr& storage : storages) {
    values.push_back(storage->value_);
    storage->was_read_ = storage->was_read_ || reads;
  }
  return values;
}

void LazyStorage::set_values(const std::vector<std::pair<LazyStorage*, std::shared_ptr<Node>>>& leaves) {
  std::vector<Value> old;  // ends after the lock
  old.reserve(leaves.size());
  std::lock_guard guard(lists().mutex);
  for (const auto& [storage, leaf] : leaves) {
    leaf->name = storage->name_;
    old.push_back(std::exchange(storage->value_, {leaf}));
    storage->before_.reset();
    storage->unlist();
  }
}

Value LazyStorage::value() const {
  std::lock_guard lock(lists().mutex);
  was_read_ = true;
  return value_;
}

bool LazyStorage::was_read() const {
  std::lock_guard lock(lists().mutex);
  return was_read_;
}

ContextPtr LazyStorage::context() const {
  std::lock_guard lock(lists().mutex);
  return context_;
}

void LazyStorage::adopt(ContextPtr context, std::string name) {
  {
    std::lock_guard lock(lists().mutex);
    was_read_ = false;
    context_ = std::move(context);
  }
  set_name(std::move(name));
}

std::string LazyStorage::name() const {
  std::lock_guard lock(lists().mutex);
  return name_ ? *name_ : std::string();
}

void LazyStorage::set_name(std::string name) {
  std::lock_guard lock(lists().mutex);
  name_ = std::make_shared<const std::string>(std::move(name));
  if (value_.node->kind == Node::Kind::leaf) value_.node->name = name_;
}

void LazyStorage::set_value(Value value, ContextPtr context) {
  std::lock_guard lock(lists().mutex);
  if (!is_pending(value_)) before_ = value_.node;
  std::swap(value_, value);  // the old one ends after the lock
  if (context) context_ = std::move(context);
  if (is_pending(value_)) {
    list_if_pending();
  } else {
    before_.reset();
    unlist();
  }
}

Pending pending_of(const ContextPtr& context, const LazyStorage* wanted) {
  std::vector<std::pair<StoragePtr, bool>> candidates;  // and whether it is a root by itself
  Pending pending;
  std::lock_guard lock(lists().mutex);
  for (LazyStorage* storage = lists().pending.first; storage; storage = storage->pending_.next) {
    bool root = storage == wanted || (context && storage->context_ == context);
    if (!root && storage->context_) continue;
    if (StoragePtr alive = xla::lock(storage)) candidates.emplace_back(std::move(alive), root);
  }
  std::vector<const Node*> roots;
  for (const auto& [storage, root] : candidates)
    if (root) roots.push_back(storage->value_.node.get());
  const auto reached = nodes_under(std::move(roots));
  for (auto& [storage, root] : candidates) {
    if (!root && !(storage->before_ && reached.count(storage->value_.node.get()))) continue;
    pending.values.push_back(storage->value_);
    pending.before.push_back(storage->before_);
    pending.storages.push_back(std::move(storage));
  }
  return pending;
}

void settle(const Pending& pending, const std::vector<std::shared_ptr<Node>>& leaves) {
  std::vector<Value> old;  // ends after the lock
  std::lock_guard lock(lists().mutex);
  for (size_t i = 0; i < leaves.size(); ++i) {
    LazyStorage& storage = *pending.storages[i];
    if (storage.value_.node != pending.values[i].node) continue;
    leaves[i]->name = storage.name_;
    old.push_back(std::exchange(storage.value_, {leaves[i]}));
    storage.before_.reset();
    storage.unlist();
  }
}

Dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Dtype::f32;
    case at::kDouble:
      return Dtype::f64;
    case at::kHalf:
      return Dtype::f16;
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kLong:
      return Dtype::i64;
    case at::kInt:
      return Dtype::i32;
    case at::kShort:
      return Dtype::i16;
    case at::kChar:
      return Dtype::i8;
    case at::kByte:
      return Dtype::u8;
    case at::kBool:
      return Dtype::boolean;
    default:
      throw Error(
          std::string("A tensor of type ") + c10::toString(type) +
          " was asked for on xla, which has none. Convert it to a real, whole or boolean type first.");
  }
}

at::ScalarType scalar_type_of(Dtype dtype) {
  constexpr at::ScalarType types[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                      at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};
  return types[static_cast<size_t>(dtype)];
}

Shape shape_of(const at::Tensor& tensor) { return {dtype_of(tensor.scalar_type()), tensor.sizes().vec()}; }

LazyStorage& storage_of(const at::Tensor& tensor) {
  return static_cast<LazyStorage&>(*tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

at::Tensor make_tensor(Value value, ContextPtr context) {
  Shape shape = value.shape();
  auto tensor =
      make_tensor(c10::make_intrusive<LazyStorage>(std::move(value), std::move(context)), shape.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape.dims);
  return tensor;
}

at::Tensor make_tensor(StoragePtr storage, Dtype dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                  c10::DispatchKeySet(c10::DispatchKey::XLA),
                                                  c10::scalarTypeToTypeMeta(scalar_type_of(dtype)));
}

Value read(const at::Tensor& tensor) {
  Value memory = storage_of(tensor).value();
  if (covers(tensor, memory.shape()) && tensor.sizes() == at::IntArrayRef(memory.shape().dims)) return memory;
  static const Op& op = row("ivme::as_strided");
  return {make_operation(op, {std::move(memory)},
                         {operand(0), whole_numbers(tensor.sizes()), whole_numbers(tensor.strides()),
                          whole_number(tensor.storage_offset())})};
}

void write(const at::Tensor& tensor, Value value, const ContextPtr& context) {
  LazyStorage& storage = storage_of(tensor);
  Value memory = storage.value();
  value = expand(cast(std::move(value), memory.shape().dtype), tensor.sizes());
  if (!covers(tensor, memory.shape())) {
    static const Op& op = row("ivme::as_strided_scatter");
    value = {make_operation(op, {std::move(memory), std::move(value)},
                            {operand(0), operand(1), whole_numbers(tensor.sizes()),
                             whole_numbers(tensor.strides()), whole_number(tensor.storage_offset())})};
  }
  storage.set_value(std::move(value), context);
}

void replace(const at::Tensor& tensor, Value value, const ContextPtr& context) {
  LazyStorage& storage = storage_of(tensor);
  value = cast(std::move(value), dtype_of(tensor.scalar_type()));
  storage.set_nbytes(bytes_of(value));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(value.shape().dims);
  storage.set_value(std::move(value), context);
}

}  // namespace ivme::xla
