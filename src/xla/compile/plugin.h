#pragma once
#include <filesystem>
#include <vector>

#include "process/environment.h"

namespace ivme::xla {

enum class Platform { cpu, tpu, cuda };
const char* name_of(Platform platform);  // "cpu", "tpu", "cuda"

// A PJRT plugin: the shared object that compiles for a kind of device and drives it. Not loaded yet.
struct Plugin {
  Platform platform = Platform::cpu;
  std::filesystem::path path;
};

// Where a plugin is looked for.
struct PluginSearch {
  ReadVariable read = read_environment;
  std::vector<std::filesystem::path>
      site_packages;  // folders that pip installs into; the first that has it wins
  std::filesystem::path device_files = "/dev";
};
// For this process: the virtual environment that is active (VIRTUAL_ENV), the folder that the build was
// given, and .venv in the program's folder or one of the three above it.
PluginSearch plugin_search();

// The plugin that is wanted. Only looks for files. The first that is there:
//   1. IVME_PJRT_PLUGIN, a path. Its platform is PJRT_DEVICE; without that its file name tells: "tpu" or
//   "cuda" in it,
//      else cpu.
//   2. TPU_LIBRARY_PATH, a path, for platform tpu.
//   3. a wheel in `site_packages`.
// The platform is PJRT_DEVICE: CPU, TPU or CUDA in any case. Where it is unset: tpu on a machine that has
// both a TPU and libtpu, else cpu. Throws Error when the platform's word is unknown, when a path that was
// given is not there (naming the variable), and when nothing was found: where it looked, and the pip command.
Plugin find_plugin(const PluginSearch& where = plugin_search());

// Whether the machine has the device files of a TPU: accel0, accel1, ... or vfio/0, vfio/1, ...
bool has_tpu(const std::filesystem::path& device_files = "/dev");

}  // namespace ivme::xla
