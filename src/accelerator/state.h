#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "accelerator/early_end.h"
#include "data/loader_core.h"
#include "gradients/bucket_reducer.h"
#include "ivme/accelerator.h"
#include "process/group.h"
#include "process/random_place.h"

namespace ivme {
class Autocast;
class Recording;
namespace xla {
struct Context;
}
}  // namespace ivme

namespace ivme::detail {

// The options with every value decided: code, else environment, else default.
struct Settings {
  Precision precision = Precision::no;
  int64_t accumulation = 1;
  c10::Device device = c10::Device(c10::kCPU);
  bool tpu = false;  // of the devices behind xla only this
  std::chrono::milliseconds timeout{0};
  std::string record;        // path; empty: no record
  int64_t max_programs = 0;  // 0: any number
};
Settings decide(const AcceleratorOptions& options, const ProcessFacts& facts);

// Where the loop stands between two updates.
struct SyncState {
  bool sync = true;           // this micro-batch ends in an update
  int64_t micro_batches = 0;  // entered since the counter was last reset
  int open_scopes = 0;        // accumulate scopes the loop is inside of
};

struct ModelRuntime {
  std::shared_ptr<AcceleratorState> accelerator;
  std::shared_ptr<torch::nn::Module> module;
  std::unique_ptr<BucketReducer> reducer;  // null: one rank, or nothing to train
  bool skip_sync = false;                  // inside no_sync, or a micro-batch that only accumulates
  bool called = false;                     // with gradients, ever
  bool called_since_backward = false;
};

struct PreparedOptimizerState {
  std::shared_ptr<AcceleratorState> accelerator;
  const void* key = nullptr;
  optim::Optimizer optimizer;
  // The gradients that may be dropped, each with its version: those of the last step, or of the time when the
  // present group of micro-batches began.
  std::vector<std::pair<const void*, uint32_t>> settled = {};
  bool step_was_skipped = false;
  bool told = false;  // that it updates parameters of no prepared model
  int number = 0;     // in the order of preparation
  int64_t steps = 0;  // made so far

  void settle_gradients();
  bool has_unused_gradients() const;  // a backward has added to them since
};

struct PreparedScheduleState {
  std::shared_ptr<AcceleratorState> accelerator;
  const void* key = nullptr;
  optim::Schedule schedule;
};

// What an Accelerator and all it prepared share. The prepared objects keep it alive; it knows them weakly.
struct AcceleratorState : std::enable_shared_from_this<AcceleratorState> {
  AcceleratorOptions options;
  Settings settings;
  ProcessFacts facts;
  std::shared_ptr<Group> group;           // null for one rank
  std::shared_ptr<xla::Context> tracing;  // null unless on xla
  std::shared_ptr<RandomPlace> random;    // null unless row_keyed_dropout, and on xla
  SyncState sync;
  std::shared_ptr<ActiveLoaders> active = std::make_shared<ActiveLoaders>();
  std::vector<std::weak_ptr<ModelRuntime>> models;
  std::vector<std::weak_ptr<PreparedOptimizerState>> optimizers;
  std::vector<std::weak_ptr<PreparedScheduleState>> schedules;
  std::vector<std::weak_ptr<LoaderCore>> loaders;
  std::unique_ptr<Recording> recording;  // null: off
  EarlyEnd early_end;

  ~AcceleratorState();
  std::unique_ptr<Autocast> autocast() const;  // null with Precision::no
  bool is_at_last_batch() const;               // which always updates
  bool ends_the_accumulation() const;          // the micro-batch that begins next
  void begin_micro_batch();
  // That backward has added to the gradients, where only a replay has.
  void bump_gradients();
};

// Of all groups, in their order.
std::vector<at::Tensor> parameters_of(const optim::Optimizer& optimizer);

// The objects that are still held, in the order of preparation.
template <class T>
std::vector<std::shared_ptr<T>> held(const std::vector<std::weak_ptr<T>>& known) {
  std::vector<std::shared_ptr<T>> alive;
  for (const auto& one : known)
    if (auto object = one.lock()) alive.push_back(std::move(object));
  return alive;
}

}  // namespace ivme::detail
