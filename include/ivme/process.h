#pragma once
#include <string>

namespace ivme {

// How the processes of this run are connected. TPU is another word for XLA.
enum class DistributedType { NO, MULTI_CPU, MULTI_GPU, XLA, TPU = XLA };

const char* name(DistributedType type);

// Who this process is, read from the environment that `ivme launch`, torchrun, MPI or Slurm set.
struct ProcessFacts {
  int process_index = 0;        // rank, 0 .. num_processes-1
  int num_processes = 1;        // world size
  int local_process_index = 0;  // rank on this host
  int local_num_processes = 1;
};

}  // namespace ivme
