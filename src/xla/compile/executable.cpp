#include "xla/compile/executable.h"

#include <utility>

#include "ivme/error.h"
#include "xla/compile/client.h"
#include "xla/compile/pjrt_call.h"

namespace ivme::xla {
namespace {

// The part of a loaded executable that is not bound to devices; a reference of our own.
class Unloaded {
 public:
  Unloaded(const PjrtApi& api, PJRT_LoadedExecutable* loaded) : api_(api) {
    auto args = sized<PJRT_LoadedExecutable_GetExecutable_Args>();
    args.loaded_executable = loaded;
    call(api, &PJRT_Api::PJRT_LoadedExecutable_GetExecutable, args, "Reading the compiled program");
    handle_ = args.executable;
  }
  ~Unloaded() {
    auto args = sized<PJRT_Executable_Destroy_Args>();
    args.executable = handle_;
    failure_of(api_, api_.table->PJRT_Executable_Destroy(&args));
  }
  Unloaded(const Unloaded&) = delete;
  Unloaded& operator=(const Unloaded&) = delete;

  PJRT_Executable* handle() const { return handle_; }

 private:
  const PjrtApi& api_;
  PJRT_Executable* handle_ = nullptr;
};

}  // namespace

Executable::Executable(std::shared_ptr<Client> client, PJRT_LoadedExecutable* handle, Signature signature,
                       int partitions)
    : client_(std::move(client)),
      handle_(handle),
      signature_(std::move(signature)),
      partitions_(partitions) {}

Executable::~Executable() {
  auto args = sized<PJRT_LoadedExecutable_Destroy_Args>();
  args.executable = handle_;
  failure_of(client_->api(), client_->api().table->PJRT_LoadedExecutable_Destroy(&args));
}

int Executable::num_outputs() const {
  const Unloaded unloaded(client_->api(), handle_);
  auto args = sized<PJRT_Executable_NumOutputs_Args>();
  args.executable = unloaded.handle();
  call(client_->api(), &PJRT_Api::PJRT_Executable_NumOutputs, args, "Counting the program's results");
  return static_cast<int>(args.num_outputs);
}

std::optional<MemoryStatistics> Executable::memory() const {
  const PjrtApi& api = client_->api();
  if (!has(api, &PJRT_Api::PJRT_Executable_GetCompiledMemoryStats)) return std::nullopt;
  const Unloaded unloaded(api, handle_);
  auto args = sized<PJRT_Executable_GetCompiledMemoryStats_Args>();
  args.executable = unloaded.handle();
  if (try_call(api, &PJRT_Api::PJRT_Executable_GetCompiledMemoryStats, args, "Reading the program's memory"))
    return std::nullopt;
  return MemoryStatistics{.code = args.generated_code_size_in_bytes,
                          .arguments = args.argument_size_in_bytes,
                          .results = args.output_size_in_bytes,
                          .aliased = args.alias_size_in_bytes,
                          .temporary = args.temp_size_in_bytes};
}

std::string Executable::serialize() const {
  const PjrtApi& api = client_->api();
  const Unloaded unloaded(api, handle_);
  auto args = sized<PJRT_Executable_Serialize_Args>();
  args.executable = unloaded.handle();
  call(api, &PJRT_Api::PJRT_Executable_Serialize, args, "Serializing the compiled program");
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

}  // namespace ivme::xla
