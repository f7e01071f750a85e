#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/run.h"

// The runs of Python Accelerate recorded in tests/data/reference.
namespace examples::testing {

struct Recording {
  int processes = 1;
  std::string example;                  // fashion_mnist or char_lm
  Words flags;                          // what makes the example do the same
  std::vector<nlohmann::json> batches;  // the first three: {"k", "ids": one list per rank}
  std::vector<nlohmann::json> micro;    // {"k", "loss": one %a per rank, "lr", "seen", "sync"?, "gn"?}
  nlohmann::json eval;                  // {"acc", "loss"}
};

Recording recording(const std::string& name);

// A run record, line by line.
struct Record {
  std::vector<nlohmann::json> micro, steps;
  nlohmann::json final;
};

Record read_record(const std::string& path);

}  // namespace examples::testing
