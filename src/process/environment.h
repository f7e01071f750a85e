#pragma once
#include <functional>
#include <optional>
#include <string>

#include "ivme/process.h"

namespace ivme {

// Reads a variable; tests give their own.
using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> read_environment(const std::string& name);  // empty counts as unset
// "1", "true", "yes", "on" in any case; throws Error for what is neither that nor its opposite.
bool is_true(const std::string& name, const std::string& value);

// How the ranks find each other.
struct Rendezvous {
  std::string address = "127.0.0.1";
  int port = 29500;
  std::optional<int> listen_descriptor;  // rank 0: a socket already listening, handed down by `ivme launch`
  bool store_is_served = false;          // torchrun's agent runs the store
  std::string attempt = "0";  // torchrun's restart count: addresses of an earlier attempt are stale
  bool one_host = true;       // every rank is on this host: stay on the loopback interface
};

// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE as `ivme launch` and torchrun set them; else those of MPI
// (PMI_*, OMPI_COMM_WORLD_*, MV2_COMM_WORLD_*) or Slurm (SLURM_PROCID, ...). Nothing set: one process. Throws
// Error for half a set, for what is not a number, and for a rank outside the world.
ProcessFacts process_facts(const ReadVariable& read = read_environment);

Rendezvous rendezvous(const ProcessFacts& facts, const ReadVariable& read = read_environment);

}  // namespace ivme
