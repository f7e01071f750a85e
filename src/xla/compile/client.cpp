#include "xla/compile/client.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "ivme/error.h"
#include "xla/compile/compile_options.h"
#include "xla/compile/host_memory.h"
#include "xla/compile/pjrt_call.h"

namespace ivme::xla {
namespace {

constexpr int most_cpu_devices = 1024;
constexpr const char* format = "mlir";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reading all 250 to 660 MB of a plugin would take longer than most compilations. Size and time of change are
// what ccache takes for the identity of a compiler; the versions are beside it.
std::string identity_of_file(const std::filesystem::path& path) {
  struct stat status = {};
  ::stat(path.c_str(), &status);
  return std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

void check(const Plugin& plugin, const ClientOptions& options) {
  if (plugin.platform == Platform::tpu && !has_tpu(options.device_files))
    throw Error("A TPU was to be opened with " + plugin.path.string() +
                ", but this machine has none: neither " + (options.device_files / "accel0").string() +
                " nor " + (options.device_files / "vfio/0").string() +
                " or the like is there. Run on a TPU VM, or set PJRT_DEVICE=CPU.");
  if (plugin.platform == Platform::cpu && (options.cpu_devices < 1 || options.cpu_devices > most_cpu_devices))
    throw Error("A client with " + std::to_string(options.cpu_devices) +
                " virtual cpu devices was asked for. Ask for 1 to " + std::to_string(most_cpu_devices) + ".");
}

PJRT_NamedValue number_option(std::string_view name, int64_t value) {
  auto option = sized<PJRT_NamedValue>();
  option.name = name.data();
  option.name_size = name.size();
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

}  // namespace

std::shared_ptr<Client> Client::create(const Plugin& plugin, const ClientOptions& options) {
  check(plugin, options);
  std::shared_ptr<Client> client(new Client(load_plugin(plugin), options.cache));
  client->open(options.cpu_devices);
  return client;
}

Client::Client(const PjrtApi& api, const DiskCacheOptions& cache) : api_(api), cache_(cache) {}

Run::~Run() {
  wait();
  for (PJRT_Buffer* handle : handles_) {
    auto args = sized<PJRT_Buffer_Destroy_Args>();
    args.buffer = handle;
    failure_of(api_, api_.table->PJRT_Buffer_Destroy(&args));
  }
}

void Run::add(PJRT_Buffer* handle) {
  std::lock_guard lock(mutex_);
  handles_.push_back(handle);
}

bool Run::has_ended() const {
  std::lock_guard lock(mutex_);
  return is_done(api_, ended_);
}

void Run::wait() {
  PJRT_Event* ended = nullptr;
  {
    std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, nullptr);
  }
  await(api_, ended);
}

std::shared_ptr<Run> Client::keep_running(PJRT_Event* ended) {
  auto newest = std::make_shared<Run>(api_, ended);
  std::vector<std::shared_ptr<Run>> over;  // freed without the lock
  std::lock_guard lock(runs_mutex_);
  while (!runs_.empty() && runs_.front()->has_ended()) {
    over.push_back(std::move(runs_.front()));
    runs_.pop_front();
  }
  runs_.push_back(newest);
  return newest;
}

void Client::finish() {
  std::deque<std::shared_ptr<Run>> all;
  {
    std::lock_guard lock(runs_mutex_);
    all.swap(runs_);
  }
  for (const auto& one : all) one->wait();
}

Client::~Client() {
  finish();
  if (handle_ == nullptr) return;
  auto args = sized<PJRT_Client_Destroy_Args>();
  args.client = handle_;
  failure_of(api_, api_.table->PJRT_Client_Destroy(&args));
}

void Client::open(int cpu_devices) {
  const char* asked = "Opening the devices";
  const PJRT_NamedValue option = number_option("cpu_device_count", cpu_devices);
  auto create = sized<PJRT_Client_Create_Args>();
  create.create_options = &option;
  create.num_options = api_.plugin.platform == Platform::cpu ? 1 : 0;
  call(
      api_, &PJRT_Api::PJRT_Client_Create, create, asked,
      "Another process may hold the devices; or choose another plugin with IVME_PJRT_PLUGIN or PJRT_DEVICE.");
  handle_ = create.client;

  auto devices = sized<PJRT_Client_AddressableDevices_Args>();
  devices.client = handle_;
  call(api_, &PJRT_Api::PJRT_Client_AddressableDevices, devices, asked);
  devices_.assign(devices.addressable_devices, devices.addressable_devices + devices.num_addressable_devices);
  if (devices_.empty())
    throw Error(
        "The PJRT plugin " + api_.plugin.path.string() +
        " opened, but has no device for this process. Choose another with IVME_PJRT_PLUGIN or PJRT_DEVICE.");

  auto platform = sized<PJRT_Client_PlatformName_Args>();
  platform.client = handle_;
  call(api_, &PJRT_Api::PJRT_Client_PlatformName, platform, asked);
  platform_.assign(platform.platform_name, platform.platform_name_size);
  on_host_ = platform_ == "cpu";
  if (on_host_) keep_freed_memory();

  auto version = sized<PJRT_Client_PlatformVersion_Args>();
  version.client = handle_;
  call(api_, &PJRT_Api::PJRT_Client_PlatformVersion, version, asked);
  version_.assign(version.platform_version, version.platform_version_size);
  identity_ = identity();
}

std::string Client::identity() const {
  std::string text = identity_of_file(api_.plugin.path) + "\n" + std::to_string(api_.major) + "." +
                     std::to_string(api_.minor) + "\n" + api_.attributes + "\n" + platform_ + "\n" +
                     version_ + "\n";
  for (const char* flags : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"})
    text += read_environment(flags).value_or("") + "\n";
  for (int i = 0; i < device_count(); ++i) text += device_kind(i) + "\n";
  return text + processor_features();
}

PJRT_Device* Client::device(int index) const {
  if (index < 0 || index >= device_count())
    throw Error("Device " + std::to_string(index) + " was asked for, but " + platform_ + " has " +
                std::to_string(device_count()) + ", counted from 0.");
  return devices_[static_cast<size_t>(index)];
}

std::string Client::device_kind(int index) const {
  const char* asked = "Reading the kind of a device";
  auto description = sized<PJRT_Device_GetDescription_Args>();
  description.device = device(index);
  call(api_, &PJRT_Api::PJRT_Device_GetDescription, description, asked);
  auto kind = sized<PJRT_DeviceDescription_Kind_Args>();
  kind.device_description = description.device_description;
  call(api_, &PJRT_Api::PJRT_DeviceDescription_Kind, kind, asked);
  return {kind.device_kind, kind.device_kind_size};
}

std::shared_ptr<Executable> Client::compile(const std::string& program, int num_partitions) {
  if (num_partitions < 1 || num_partitions > device_count())
    throw Error("A program for " + std::to_string(num_partitions) + " devices was to be compiled, but " +
                platform_ + " has " + std::to_string(device_count()) + ". Compile for 1 to that many.");
  Signature signature = read_signature(program);
  const std::string options = compile_options(num_partitions);
  const std::string key = cache_key({identity_, options, program});
  const auto start = std::chrono::steady_clock::now();
  PJRT_LoadedExecutable* handle = load(key);
  const bool from_cache = handle != nullptr;
  if (!from_cache) handle = build(program, options);
  auto executable =
      std::make_shared<Executable>(shared_from_this(), handle, std::move(signature), num_partitions);
  executable->from_cache_ = from_cache;
  executable->seconds_ = seconds_since(start);
  ++(from_cache ? loaded_ : compiled_);
  const auto wanted = static_cast<int>(executable->signature().results.size());
  const int given = executable->num_outputs();
  if (given != wanted)
    throw Error("A program with " + std::to_string(wanted) + " results was compiled, but the PJRT plugin " +
                api_.plugin.path.string() + " counts " + std::to_string(given) +
                ". Return tensors from @main, not tuples.");
  if (!from_cache && cache_.stores()) keep(key, *executable);
  return executable;
}

PJRT_LoadedExecutable* Client::load(const std::string& key) {
  const auto bytes = cache_.find(key);
  if (!bytes) return nullptr;
  auto args = sized<PJRT_Executable_DeserializeAndLoad_Args>();
  args.client = handle_;
  args.serialized_executable = bytes->data();
  args.serialized_executable_size = bytes->size();
  const auto failure =
      try_call(api_, &PJRT_Api::PJRT_Executable_DeserializeAndLoad, args, "Loading a compiled program");
  if (!failure) return args.loaded_executable;
  cache_.drop(key, "the PJRT plugin " + api_.plugin.path.string() + " says: " + failure->text);
  return nullptr;
}

PJRT_LoadedExecutable* Client::build(const std::string& program, const std::string& options) {
  auto text = sized<PJRT_Program>();
  text.code = const_cast<char*>(program.data());  // only read
  text.code_size = program.size();
  text.format = format;
  text.format_size = std::string_view(format).size();
  auto args = sized<PJRT_Client_Compile_Args>();
  args.client = handle_;
  args.program = &text;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  call(api_, &PJRT_Api::PJRT_Client_Compile, args, "Compiling the program");
  return args.executable;
}

void Client::keep(const std::string& key, const Executable& executable) {
  std::string bytes;
  try {
    bytes = executable.serialize();
  } catch (const Error& error) {
    return cache_.stop_storing(error.what());
  }
  cache_.store(key, bytes);
}

}  // namespace ivme::xla
