#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "xla/compile/executable.h"
#include "xla/graph.h"
#include "xla/lower/program.h"

namespace ivme::xla {

struct Context;
class LazyStorage;
struct Pending;
using WeakStorage = c10::weak_intrusive_ptr<LazyStorage>;

// Where an input of a program comes from in every call, or where a result goes.
struct Place {
  enum class Kind : uint8_t {
    argument,  // of the call
    storage,   // a tensor that was there before the call: a parameter, an optimizer's state
    gradient,  // of a parameter, a new tensor in every call
    result,    // what the call returns
    constant,  // uploaded in the call, with the same contents each time
    nowhere,   // a result that nobody holds
  };
  Kind kind = Kind::nowhere;
  size_t index = 0;  // among those of its kind

  bool operator==(const Place&) const = default;
};

// What a call of a step has turned out to be: a program, and all that a call without the host's code needs to
// run it. Holds no buffer but its constants.
struct CapturedStep {
  struct Number {
    NumberBits value;
    int source = -1;  // among `sources`; -1: only the host's code knows it
  };
  struct Source {
    std::shared_ptr<const HostNumber> number;
    size_t after = 0;  // of `actions`, those that come before it is asked
  };
  // A tensor that was there before takes the contents of another without computing anything.
  struct Copy {
    size_t storage = 0;
    Place from;
  };
  // A tensor that the call returns: a view of what is at the place. Undefined: of nothing.
  struct Result {
    bool defined = false;
    Place place;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;
  };

  uint64_t key = 0;
  std::shared_ptr<Executable> executable;
  std::vector<std::vector<Place>> inputs;  // for each leaf: all that had this one buffer
  std::vector<Number> numbers;
  std::vector<size_t> number_groups;  // as in Graph
  std::vector<Source> sources;
  std::vector<int> aliases;
  std::vector<Place> outputs;
  std::vector<Copy> copies;
  std::vector<Result> results;
  std::vector<std::function<void()>> actions;  // what the host does besides: counts, schedules

  std::vector<WeakStorage> storages;
  std::vector<std::shared_ptr<Node>> constants;
  std::vector<uint64_t> contents;  // of the constants: a hash
  // What floats and was not run: storages, with the value that the program computes anew.
  std::vector<std::pair<size_t, std::shared_ptr<Node>>> floating;

  // As the call before but perhaps for the tensors that it uses.
  bool is_the_same_program = false;
  // Why it cannot be replayed whatever the next calls are like; empty: it can.
  std::string refusal;
  // In what it differs from the call before; empty: in nothing.
  std::string difference;
};

// One call of a step during which this thread records: notes what the program alone does not tell. Made when
// nothing is pending; `end` is called when the call's locals are dead.
class Capture {
 public:
  // `parameters`: those whose gradients may be new. `before`: the last call that was captured, or null.
  Capture(std::shared_ptr<Context> context, std::vector<at::Tensor> arguments,
          std::vector<at::Tensor> parameters, const CapturedStep* before);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  static Capture* current();  // of this thread, or null
  uint64_t number() const { return number_; }

  // The call does something that no replay can do.
  void refuse(std::string why);
  void note_upload(const std::shared_ptr<Node>& leaf, const void* data, size_t bytes);
  void note_source(const HostNumber* source);
  // What the host does at this point of a replay.
  void note_action(std::function<void()> action);
  // The same, known only when it has been done: between the two the numbers of ivme::optim know their
  // sources.
  void begin_action();
  void end_action(std::function<void()> action);
  void note_schedule(std::function<void()> step);
  bool has_actions_of_schedules() const { return schedules_; }
  bool is_in_action() const { return in_action_; }

  // Runs what was recorded, as a step's end. `results`: what the call returns, nobody else holding them.
  CapturedStep end(const std::vector<at::Tensor>& results);
  // Called by the end of the step, before its program runs.
  void observe(const Graph& graph, const Pending& pending, const std::shared_ptr<Executable>& executable);

 private:
  struct Known;  // what was there before the call
  struct Lost;   // a result that must have died

  size_t index_of(LazyStorage* storage);
  Place place_of(LazyStorage* storage);
  void find_inputs(const Graph& graph);
  void narrow(std::vector<Place>& places, size_t input) const;
  void find_outputs(const Graph& graph, const Pending& pending);
  void find_copies();
  void refuse_lost_writes(const Pending& pending);
  void find_numbers(const Graph& graph);
  void find_results();
  void compare(const Graph& graph);
  void check_escapes(const std::vector<at::Tensor>& results);

  std::shared_ptr<Context> context_;
  std::vector<at::Tensor> arguments_, parameters_, results_;
  const CapturedStep* before_;
  Capture* outer_;
  uint64_t number_;
  bool observed_ = false, in_action_ = false, schedules_ = false;
  std::vector<Known> known_;
  std::vector<Lost> lost_;
  std::unordered_map<const Node*, uint64_t> uploads_;  // a hash of their contents
  std::unordered_map<const HostNumber*, size_t> first_use_;
  std::unordered_set<const Node*> older_;  // nodes of the program that were recorded before the call
  std::unordered_map<const LazyStorage*, size_t> storage_index_;
  CapturedStep step_;
};

}  // namespace ivme::xla
