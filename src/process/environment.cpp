#include "process/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "ivme/error.h"

namespace ivme {
namespace {

struct Names {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr std::array<Names, 5> known = {{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}};

std::optional<int> number(const ReadVariable& read, const std::string& name) {
  auto text = read(name);
  if (!text) return std::nullopt;
  int value = 0;
  auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc() || end != text->data() + text->size())
    throw Error("The environment says " + name + "=" + *text +
                ", which is not a number. Unset it, or start with `ivme launch`.");
  return value;
}

}  // namespace

std::optional<std::string> read_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool is_true(const std::string& name, const std::string& value) {
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "yes", "on", "y", "t"})
    if (word == yes) return true;
  for (const char* no : {"0", "false", "no", "off", "n", "f"})
    if (word == no) return false;
  throw Error("The environment says " + name + "=" + value +
              ", which is neither true nor false. Set it to 1 or 0.");
}

ProcessFacts process_facts(const ReadVariable& read) {
  for (const Names& names : known) {
    auto rank = number(read, names.rank);
    auto size = number(read, names.size);
    if (!rank && !size) continue;
    // Slurm sets its variables for a single interactive step too, and MPI's rank may stand without a size.
    if (!rank || !size) {
      if (std::string(names.rank) != "RANK") continue;
      throw Error(std::string("The environment sets ") + (rank ? names.rank : names.size) + " but not " +
                  (rank ? names.size : names.rank) + ". Set both or neither, or start with `ivme launch`.");
    }
    if (*size < 1 || *rank < 0 || *rank >= *size)
      throw Error(std::string("The environment says ") + names.rank + "=" + std::to_string(*rank) + " and " +
                  names.size + "=" + std::to_string(*size) +
                  ". A rank lies between 0 and the world size less one.");
    ProcessFacts facts;
    facts.process_index = *rank;
    facts.num_processes = *size;
    facts.local_process_index = number(read, names.local_rank).value_or(*rank);
    facts.local_num_processes = number(read, names.local_size).value_or(*size);
    return facts;
  }
  return {};
}

Rendezvous rendezvous(const ProcessFacts& facts, const ReadVariable& read) {
  Rendezvous where;
  where.one_host = facts.local_num_processes == facts.num_processes;
  auto address = read("MASTER_ADDR");
  if (!address && !where.one_host)
    throw Error("These " + std::to_string(facts.num_processes) +
                " processes run on several hosts, but MASTER_ADDR is not set. Set it to the address of rank "
                "0's host.");
  if (address) where.address = *address;
  where.one_host = where.one_host && (where.address == "localhost" || where.address == "::1" ||
                                      where.address.starts_with("127."));
  if (auto port = number(read, "MASTER_PORT")) where.port = *port;
  if (facts.process_index == 0) where.listen_descriptor = number(read, "IVME_MASTER_LISTEN_FD");
  where.store_is_served = read("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  where.attempt = read("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return where;
}

}  // namespace ivme
