#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ivme::record {

// Name and value in the order in which they are written.
using Numbers = std::vector<std::pair<std::string, double>>;
using Strings = std::vector<std::pair<std::string, std::string>>;

struct OptimizerFacts {
  std::string name;  // "sgd", "adam", "adamw", or the name of the torch::optim class
  Numbers values;    // lr, weight_decay, momentum, ...
};

struct SchedulerFacts {
  std::string name;
  std::optional<int64_t> total;  // steps of the schedule, where it has an end
  int64_t steps_per_update = 1;
};

// The first line of a record: docs/run_record.md has the meaning of each field. An empty optional is written
// as null for seed and scheduler and left out elsewhere.
struct Facts {
  std::optional<int64_t> seed;
  std::string device = "cpu";  // cpu | cuda | xla:cpu | xla:tpu
  int64_t workers = 1;
  int64_t host_processes = 1;
  std::optional<int64_t> per_worker_batch;  // these three: without a prepared loader nobody knows them
  std::optional<bool> split_batches;
  std::optional<int64_t> observed_batch;
  int64_t accumulation = 1;
  std::optional<OptimizerFacts> optimizer;
  std::optional<SchedulerFacts> scheduler;
  std::string precision = "no";
  std::string sampler = "none";      // seedable | default | none
  std::optional<std::string> order;  // 16 hex digits
  std::optional<std::string> init;   // 16 hex digits
  bool batch_norm = false;
  bool dropout = false;
  Strings versions;
  std::vector<std::string> command;
  Strings environment;
};

// One optimizer step as one rank saw it.
struct StepEntry {
  int optimizer = 0;    // in the order of preparation
  int64_t step = 1;     // from 1, per optimizer, rising; equal numbers on the ranks meet in one line
  int64_t samples = 0;  // of this step, of this rank
  double loss = 0;      // mean over this rank's micro-batches of the sum of a micro-batch's losses
  double lr = 0;        // used in this step
  double grad_norm = 0;
  std::optional<double> param_norm;
  std::optional<double> update_norm;
  uint64_t order = 0;  // sum of index_hash over this rank's samples of this step, modulo 2^64
  std::optional<int64_t> tokens;
  double seconds = 0;                // since the first step began
  std::vector<double> micro_losses;  // one per micro-batch; needed only under RecordOptions::micro
};

}  // namespace ivme::record
