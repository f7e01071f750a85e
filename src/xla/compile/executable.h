#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "xla/compile/signature.h"

struct PJRT_LoadedExecutable;

namespace ivme::xla {

class Client;

struct MemoryStatistics {  // bytes on one device
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t results = 0;
  int64_t aliased = 0;  // counted in both arguments and results: what donation saves
  int64_t temporary = 0;

  int64_t peak() const { return code + arguments + results - aliased + temporary; }
};

// A compiled program, ready to run (run/execute.h). Keeps its client alive. Any thread, several at once.
class Executable {
 public:
  // Client::compile makes them. Takes over `handle`.
  Executable(std::shared_ptr<Client> client, PJRT_LoadedExecutable* handle, Signature signature,
             int partitions);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  Client& client() const { return *client_; }
  PJRT_LoadedExecutable* handle() const { return handle_; }
  const Signature& signature() const { return signature_; }
  int num_partitions() const { return partitions_; }

  bool from_cache() const { return from_cache_; }  // loaded from disk rather than compiled
  double seconds() const { return seconds_; }      // that compiling or loading took

  int num_outputs() const;  // as the plugin counts them
  // Nothing where the plugin does not tell.
  std::optional<MemoryStatistics> memory() const;
  // For the same plugin, on a machine with the same processor and devices. Throws Error where the plugin
  // cannot.
  std::string serialize() const;

 private:
  friend class Client;
  std::shared_ptr<Client> client_;
  PJRT_LoadedExecutable* handle_;
  Signature signature_;
  int partitions_;
  bool from_cache_ = false;
  double seconds_ = 0;
};

}  // namespace ivme::xla
