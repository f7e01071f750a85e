#pragma once
#include <string>
#include <vector>

#include "launch/launcher.h"

namespace ivme::launch {

// What all ranks of a launch share, worked out from the options and the machine.
struct Plan {
  int num_processes = 1;
  int threads = 0;         // OMP_NUM_THREADS
  int port = 0;            // MASTER_PORT
  int listen_fd = -1;      // IVME_MASTER_LISTEN_FD of rank 0
  int terminal_width = 0;  // 0: stderr is not a terminal
};

// Number of GPUs a program started now would see: CUDA_VISIBLE_DEVICES, else the device files.
int visible_gpus();

// Checks the options and fills num_processes and threads. Throws UsageError.
Plan make_plan(const LaunchOptions& options);

// The environment of one rank, as NAME=VALUE: this process's own, with the launch's variables put in and
// those of an outer launcher taken out.
std::vector<std::string> rank_environment(const LaunchOptions& options, const Plan& plan, int rank);

}  // namespace ivme::launch
