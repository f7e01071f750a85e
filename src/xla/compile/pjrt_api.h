#pragma once
#include <string>

#include "xla/compile/plugin.h"

struct PJRT_Api;

namespace ivme::xla {

// A plugin in this process: its table of C functions, and what it says about itself. Sources call it through
// pjrt_call.h. It is loaded once for each file and stays until the process ends: plugins have threads of
// their own and cannot be unloaded.
struct PjrtApi {
  Plugin plugin;
  const PJRT_Api* table = nullptr;
  int major = 0, minor = 0;  // version of the C API it was built with
  std::string attributes;    // "stablehlo_current_version=1.13.3 xla_version=2 ...", in the plugin's order
};

// Loads and initialises the plugin. Callable from any thread; the reference is good for ever. First sets,
// where they are unset, TF_CPP_MIN_LOG_LEVEL=3 (XLA writes to stderr only why it aborts: its errors come as
// exceptions) and, for libtpu, TPU_LOG_DIR=disabled and, on a machine without a TPU, TPU_SKIP_MDS_QUERY=1 (it
// would ask a cloud metadata server for minutes). Throws Error, with the path and a remedy: the file is
// missing, is no shared object, has no GetPjrtApi, speaks an API too old or of another major version, or
// refuses to initialise. One thing cannot be caught: a flag in XLA_FLAGS that the plugin does not know ends
// the process, with the flag's name.
const PjrtApi& load_plugin(const Plugin& plugin);

}  // namespace ivme::xla
