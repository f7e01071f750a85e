#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ivme/accelerator.h"

// The command line that the examples share.
namespace examples {

struct Flags {
  std::string model, dataset;
  std::string data;  // folder of the data; empty: where the packages put them
  std::string optimizer = "sgd";
  std::string scheduler = "none";
  double lr = 0;
  bool scale_lr = false;    // multiply lr by the number of processes
  int64_t batch_size = 64;  // per process, or of all of them together with split_batches
  std::optional<int64_t> epochs;
  std::optional<int64_t> max_batches;  // micro-batches per process
  uint64_t seed = 42;
  double clip = 0;              // largest norm of the gradients; 0: as they are
  std::string save_parameters;  // file, or empty
  // Holds what was given only, so that the environment (`ivme launch`) decides the rest.
  ivme::AcceleratorOptions accelerator;
};

// What tells one example's command line from another's. The first of each list is the default.
struct Program {
  std::string description;
  std::vector<std::string> models, datasets;
  double sgd_lr = 0.05;
};

// Reads the command line and calls `train`. Returns the program's exit code: 0; 2 for a wrong command line; 1
// for what train throws. Errors are written to stderr as one sentence.
int run(int argc, char** argv, const Program& program, void (*train)(const Flags&));

}  // namespace examples
