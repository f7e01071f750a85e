#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "xla/compile/disk_cache.h"
#include "xla/compile/executable.h"
#include "xla/compile/pjrt_api.h"

struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_Event;

namespace ivme::xla {

struct ClientOptions {
  int cpu_devices = 1;  // virtual devices of a cpu plugin, 1 to 1024: the number of workers
  DiskCacheOptions cache = disk_cache_options();
  std::filesystem::path device_files = "/dev";
};

// An execution, and the handles of arrays that it consumed and nobody holds any more. Whoever frees such
// a handle before the execution has ended waits for it, so the client frees them later.
class Run {
 public:
  Run(const PjrtApi& api, PJRT_Event* ended) : api_(api), ended_(ended) {}
  ~Run();  // waits
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void add(PJRT_Buffer* handle);  // takes it over
  bool has_ended() const;
  void wait();

 private:
  const PjrtApi& api_;
  PJRT_Event* ended_;
  mutable std::mutex mutex_;
  std::vector<PJRT_Buffer*> handles_;
};

// The devices of one plugin in this process. Buffers and executables keep it alive. Any thread, several at
// once.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Loads the plugin and opens its devices. Throws Error: what load_plugin throws, options out of range,
  // platform tpu on a machine without the device files of a TPU (libtpu is then not even loaded), a plugin
  // that refuses (with its text).
  static std::shared_ptr<Client> create(const Plugin& plugin, const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Compiles StableHLO text for the first `num_partitions` devices, or loads what an earlier process
  // compiled. Throws Error with the compiler's text, which names line and column.
  std::shared_ptr<Executable> compile(const std::string& program, int num_partitions = 1);

  const PjrtApi& api() const { return api_; }
  PJRT_Client* handle() const { return handle_; }
  const std::string& platform() const { return platform_; }  // as the plugin calls it: "cpu", "tpu", "cuda"
  const std::string& version() const { return version_; }    // the plugin's own words
  bool on_host() const { return on_host_; }                  // device memory is host memory

  // The devices that this process drives, in the plugin's order.
  int device_count() const { return static_cast<int>(devices_.size()); }
  PJRT_Device* device(int index) const;      // throws Error when there is none
  std::string device_kind(int index) const;  // "cpu", "TPU v4"

  // Programs compiled, and programs loaded from disk, by this client.
  int64_t compiled() const { return compiled_; }
  int64_t loaded() const { return loaded_; }
  // Buffers that exist on its devices, and their bytes.
  int64_t live_buffers() const { return live_buffers_; }
  int64_t live_bytes() const { return live_bytes_; }

  // Keeps it until the execution has ended, and frees what has ended before.
  std::shared_ptr<Run> keep_running(PJRT_Event* ended);
  // Waits for all that was started. A plugin must not be computing when the process ends: it would go on
  // while its own static objects are destroyed, some of them before any exit handler of ours.
  void finish();

 private:
  friend class Buffer;
  Client(const PjrtApi& api, const DiskCacheOptions& cache);
  void open(int cpu_devices);
  std::string identity() const;
  PJRT_LoadedExecutable* load(const std::string& key);  // null when the cache has nothing that loads
  PJRT_LoadedExecutable* build(const std::string& program, const std::string& options);
  void keep(const std::string& key, const Executable& executable);

  const PjrtApi& api_;
  PJRT_Client* handle_ = nullptr;
  std::vector<PJRT_Device*> devices_;
  std::string platform_, version_, identity_;  // identity: all that a compiled program depends on but itself
  bool on_host_ = false;
  DiskCache cache_;
  std::atomic<int64_t> compiled_{0}, loaded_{0}, live_buffers_{0}, live_bytes_{0};
  std::mutex runs_mutex_;
  std::deque<std::shared_ptr<Run>> runs_;  // in the order of their starts
};

}  // namespace ivme::xla
