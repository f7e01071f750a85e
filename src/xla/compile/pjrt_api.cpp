#include "xla/compile/pjrt_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "ivme/error.h"
#include "xla/compile/pjrt_call.h"

namespace ivme::xla {
namespace {

// The tables have only grown since; older ones were never tried.
constexpr int api_major = 0, oldest_minor = 81;
static_assert(PJRT_API_MAJOR == api_major && PJRT_API_MINOR >= oldest_minor,
              "pjrt_c_api.h is of another version than the sources were written for");

std::string quoted(const Plugin& plugin) { return "The PJRT plugin " + plugin.path.string(); }

const std::string another_plugin =
    " Set IVME_PJRT_PLUGIN to a plugin, or unset it and install one: pip install xla-cpu-pjrt (or libtpu).";

const PJRT_Api* entry_of(const Plugin& plugin) {
  if (!std::filesystem::exists(plugin.path)) throw Error(quoted(plugin) + " is not there." + another_plugin);
  void* library = ::dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(quoted(plugin) + " is not a shared object that can be loaded here: " + ::dlerror() + "." +
                another_plugin);
  auto* get_api = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr)
    throw Error(quoted(plugin) + " is a shared object without GetPjrtApi, so not a PJRT plugin." +
                another_plugin);
  const PJRT_Api* table = get_api();
  if (table == nullptr)
    throw Error(quoted(plugin) + " gives no table of functions: its GetPjrtApi returns null." +
                another_plugin);
  return table;
}

void check_version(const PjrtApi& api) {
  if (api.major == api_major && api.minor >= oldest_minor && has(api, &PJRT_Api::PJRT_Compile)) return;
  throw Error(quoted(api.plugin) + " speaks version " + std::to_string(api.major) + "." +
              std::to_string(api.minor) + " of the PJRT API with " + std::to_string(api.table->struct_size) +
              " bytes of functions; ivme needs " + std::to_string(api_major) + "." +
              std::to_string(oldest_minor) + " or a later " + std::to_string(api_major) +
              ".x. Install a plugin of that age: pip install "
              "--upgrade xla-cpu-pjrt (or libtpu).");
}

std::string text_of(const PJRT_NamedValue& value) {
  std::string text(value.name, value.name_size);
  text += '=';
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return text.append(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64:
      return text + std::to_string(value.int64_value);
    case PJRT_NamedValue_kFloat:
      return text + std::to_string(value.float_value);
    case PJRT_NamedValue_kBool:
      return text + (value.bool_value ? "true" : "false");
    case PJRT_NamedValue_kInt64List:
      for (size_t i = 0; i < value.value_size; ++i)
        text += (i == 0 ? "" : ".") + std::to_string(value.int64_array_value[i]);
  }
  return text;
}

std::string attributes_of(const PjrtApi& api) {
  auto args = sized<PJRT_Plugin_Attributes_Args>();
  call(api, &PJRT_Api::PJRT_Plugin_Attributes, args, "Reading the attributes");
  std::string text;
  for (size_t i = 0; i < args.num_attributes; ++i) text += (i == 0 ? "" : " ") + text_of(args.attributes[i]);
  return text;
}

void set_defaults(Platform platform) {
  ::setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
  if (platform != Platform::tpu) return;
  ::setenv("TPU_LOG_DIR", "disabled", 0);
  if (!has_tpu()) ::setenv("TPU_SKIP_MDS_QUERY", "1", 0);
}

std::unique_ptr<PjrtApi> load(const Plugin& plugin) {
  set_defaults(plugin.platform);
  auto api = std::make_unique<PjrtApi>();
  api->plugin = plugin;
  api->table = entry_of(plugin);
  if (api->table->struct_size >= offsetof(PJRT_Api, pjrt_api_version) + sizeof(PJRT_Api_Version)) {
    api->major = api->table->pjrt_api_version.major_version;
    api->minor = api->table->pjrt_api_version.minor_version;
  }
  check_version(*api);
  auto args = sized<PJRT_Plugin_Initialize_Args>();
  call(*api, &PJRT_Api::PJRT_Plugin_Initialize, args, "Initialising");
  api->attributes = attributes_of(*api);
  return api;
}

std::string sentence(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '.'))
    text.remove_suffix(1);
  return std::string(text) + ".";
}

}  // namespace

const PjrtApi& load_plugin(const Plugin& plugin) {
  static std::mutex mutex;
  static auto& loaded =
      *new std::map<std::filesystem::path, std::unique_ptr<PjrtApi>>;  // outlives all destructors
  const std::lock_guard lock(mutex);
  std::error_code ignored;
  auto& api = loaded[std::filesystem::weakly_canonical(plugin.path, ignored)];
  if (!api) api = load(plugin);
  return *api;
}

std::optional<Failure> failure_of(const PjrtApi& api, PJRT_Error* error) {
  if (error == nullptr) return std::nullopt;
  auto code = sized<PJRT_Error_GetCode_Args>();
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  auto* unreadable = api.table->PJRT_Error_GetCode(&code);
  auto message = sized<PJRT_Error_Message_Args>();
  message.error = error;
  api.table->PJRT_Error_Message(&message);
  Failure failure{code.code, std::string(message.message, message.message_size)};
  for (auto* each : {unreadable, error}) {
    auto destroy = sized<PJRT_Error_Destroy_Args>();
    destroy.error = each;
    if (each != nullptr) api.table->PJRT_Error_Destroy(&destroy);
  }
  return failure;
}

void throw_failure(const PjrtApi& api, const Failure& failure, std::string_view asked,
                   std::string_view remedy) {
  std::string message(asked);
  message += " failed in the PJRT plugin " + api.plugin.path.string() + ": " + sentence(failure.text);
  if (failure.code == PJRT_Error_Code_RESOURCE_EXHAUSTED) remedy = "Use a smaller batch or a smaller model.";
  if (!remedy.empty()) message.append(" ").append(remedy);
  throw Error(message);
}

void throw_missing(const PjrtApi& api, std::string_view asked) {
  throw Error(std::string(asked) + " is not possible with the PJRT plugin " + api.plugin.path.string() +
              ": it speaks version " + std::to_string(api.major) + "." + std::to_string(api.minor) +
              " of the PJRT API, without the function for it. Install a newer plugin.");
}

std::optional<Failure> await(const PjrtApi& api, PJRT_Event* event) {
  if (event == nullptr) return std::nullopt;
  auto args = sized<PJRT_Event_Await_Args>();
  args.event = event;
  auto failure = try_call(api, &PJRT_Api::PJRT_Event_Await, args, "Waiting for the device");
  auto destroy = sized<PJRT_Event_Destroy_Args>();
  destroy.event = event;
  try_call(api, &PJRT_Api::PJRT_Event_Destroy, destroy, "Freeing an event");
  return failure;
}

bool is_done(const PjrtApi& api, PJRT_Event* event) {
  if (event == nullptr) return true;
  auto args = sized<PJRT_Event_IsReady_Args>();
  args.event = event;
  return try_call(api, &PJRT_Api::PJRT_Event_IsReady, args, "Asking for the device") || args.is_ready;
}

}  // namespace ivme::xla
