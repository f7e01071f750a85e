#pragma once
#include <ATen/core/TensorBody.h>
#include <c10/core/StorageImpl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "xla/graph.h"
#include "xla/programs.h"

namespace ivme::xla {

// One recording: what the operations of one Accelerator have computed and not yet run. Tensors carry it: the
// result of an operation belongs where its operands do, in whatever thread it is recorded. What no operand
// ties to a recording (torch::zeros on xla) floats until an operation with such an operand uses it, or until
// the host reads it. For one thread at a time, as an Accelerator is; autograd's counts as the one that waits
// for it.
struct Context : std::enable_shared_from_this<Context> {
  ProgramsOfLoop programs;
  // The host has read a value of this step, which ran what had been recorded until then.
  bool was_cut = false;
  CallSite cut_at;       // where it read, of the first such read of the step
  std::string failure;   // of an execution, which cost the state that it was updating; "": none
  uint64_t step = 0;     // steps that have ended since the seed was set
  int64_t position = 0;  // random operations in this step
  Value seed;            // what they draw from: made by the first of a step
  std::pair<uint64_t, uint64_t> seeded = {0, 0};  // the seed, and how often one had been set
  // Results of this step in any case, so that it does not matter how long the loop holds them: losses.
  std::vector<at::Tensor> held;

  void next_step() {
    ++step;
    position = 0;
    seed = {};
  }
};
using ContextPtr = std::shared_ptr<Context>;

struct Pending;
class LazyStorage;
using StoragePtr = c10::intrusive_ptr<LazyStorage>;

// A tensor on xla is a plain TensorImpl, sizes and strides, over this: memory in row-major order, whose
// contents are in a buffer (the value is a leaf) or recorded (it is pending).
//
// One mutex guards the values of all storages, for a few instructions each: autograd's thread records while
// the loop's waits, and loader threads upload.
class LazyStorage final : public c10::StorageImpl {
 public:
  LazyStorage(Value value, ContextPtr context);
  ~LazyStorage() override;

  Value value() const;
  bool was_read() const;  // value() has been asked for, since adopt
  ContextPtr context() const;
  // Belongs to this recording from now on, and is called so in messages.
  void adopt(ContextPtr context, std::string name);
  void set_name(std::string name);
  std::string name() const;
  // Another value for the same memory, of any dims. `context`: of the operation that wrote it; null changes
  // nothing.
  void set_value(Value value, ContextPtr context);
  // The captured call in which it was made (replay/capture.h); 0: in none.
  uint64_t made_in() const { return made_in_; }

  // Every storage that is alive.
  static std::vector<StoragePtr> all();
  // `reads`: as value() does, for was_read.
  static std::vector<Value> values(const std::vector<StoragePtr>& storages, bool reads);
  static void set_values(const std::vector<std::pair<LazyStorage*, std::shared_ptr<Node>>>& leaves);

 private:
  friend struct Pending;
  friend Pending pending_of(const ContextPtr& context, const LazyStorage* wanted);
  friend void settle(const Pending& pending, const std::vector<std::shared_ptr<Node>>& leaves);
  void list_if_pending();
  void unlist();

  Value value_;
  ContextPtr context_;
  std::shared_ptr<const std::string> name_;
  std::shared_ptr<Node> before_;  // the leaf that the pending value replaced: its memory may be taken
  mutable bool was_read_ = false;
  // Places in a list of storages: in that of the pending ones, and in that of all.
  struct Links {
    LazyStorage* previous = nullptr;
    LazyStorage* next = nullptr;
  };
  bool listed_ = false;
  Links pending_, all_;
  uint64_t made_in_ = 0;
};

// The storages that one run makes, in the order in which they became pending: all of the context, and of the
// floating ones those that it needs and that overwrite a buffer (an optimizer's state). Others are computed
// again wherever they are used, to the same values: whether a temporary is still held, by autograd's thread
// for a moment longer, must not decide what the program is. With `wanted`: also that one.
struct Pending {
  std::vector<StoragePtr> storages;
  std::vector<Value> values;
  std::vector<std::shared_ptr<Node>> before;  // see LazyStorage; null where there was none
};
Pending pending_of(const ContextPtr& context, const LazyStorage* wanted = nullptr);
// The storages' values are these leaves from now on, but for those that were written again meanwhile.
void settle(const Pending& pending, const std::vector<std::shared_ptr<Node>>& leaves);

Dtype dtype_of(at::ScalarType type);  // throws for what XLA has not (complex, quantized)
at::ScalarType scalar_type_of(Dtype dtype);
Shape shape_of(const at::Tensor& tensor);

LazyStorage& storage_of(const at::Tensor& tensor);
at::Tensor make_tensor(Value value, ContextPtr context);
at::Tensor make_tensor(StoragePtr storage, Dtype dtype);  // without sizes yet
// The contents of a tensor, which may be a view, as a value of the tensor's shape.
Value read(const at::Tensor& tensor);
// Assigns, converted and broadcast to the tensor; what other views of the same storage see changes too.
void write(const at::Tensor& tensor, Value value, const ContextPtr& context);
// Gives the tensor, which is no view, other sizes and contents: what an out= argument of the wrong size gets.
void replace(const at::Tensor& tensor, Value value, const ContextPtr& context);

}  // namespace ivme::xla
