#include "xla/compile/plugin.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ivme/error.h"
#include "support/nearest.h"

namespace ivme::xla {
namespace {

namespace fs = std::filesystem;

struct Wheel {
  const char* name;
  const char* file;  // below site-packages
};
constexpr std::array cpu_wheels = {
    Wheel{"xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"},
    Wheel{"lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"},
    Wheel{"fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so"},
};
constexpr std::array tpu_wheels = {Wheel{"libtpu", "libtpu/libtpu.so"}};
constexpr std::array cuda_wheels = {
    Wheel{"jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"},
    Wheel{"jax-cuda12-pjrt", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
};

std::span<const Wheel> wheels_of(Platform platform) {
  if (platform == Platform::tpu) return tpu_wheels;
  if (platform == Platform::cuda) return cuda_wheels;
  return cpu_wheels;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::optional<Platform> chosen_platform(const ReadVariable& read) {
  const auto word = read("PJRT_DEVICE");
  if (!word) return std::nullopt;
  for (const Platform platform : {Platform::cpu, Platform::tpu, Platform::cuda})
    if (lower_case(*word) == name_of(platform)) return platform;
  const std::array<std::string, 3> choices = {"CPU", "TPU", "CUDA"};
  throw Error("The environment says PJRT_DEVICE=" + *word + ": " + unknown_word("device", *word, choices) +
              ". Set it to one of these, or unset it.");
}

Platform platform_by_name(const fs::path& file) {
  const std::string name = lower_case(file.filename().string());
  if (name.find("tpu") != std::string::npos) return Platform::tpu;
  if (name.find("cuda") != std::string::npos) return Platform::cuda;
  return Platform::cpu;
}

fs::path existing(const char* variable, const std::string& path) {
  if (fs::exists(path)) return path;
  throw Error(std::string("The environment says ") + variable + "=" + path +
              ", but there is no such file. Set it to the plugin's shared object, or unset it.");
}

std::optional<fs::path> wheel_in(const std::vector<fs::path>& site_packages, Platform platform) {
  for (const fs::path& folder : site_packages)
    for (const Wheel& wheel : wheels_of(platform))
      if (fs::exists(folder / wheel.file)) return folder / wheel.file;
  return std::nullopt;
}

std::optional<fs::path> plugin_of(Platform platform, const PluginSearch& where) {
  if (platform == Platform::tpu)
    if (const auto path = where.read("TPU_LIBRARY_PATH")) return existing("TPU_LIBRARY_PATH", *path);
  return wheel_in(where.site_packages, platform);
}

void add_environment(std::vector<fs::path>& found, const fs::path& environment) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(environment / "lib", ignored))
    if (entry.path().filename().string().starts_with("python3") && fs::exists(entry.path() / "site-packages"))
      found.push_back(entry.path() / "site-packages");
}

std::string not_found(Platform platform, const PluginSearch& where) {
  std::string message =
      std::string("A PJRT plugin for ") + name_of(platform) + " was wanted, but IVME_PJRT_PLUGIN";
  if (platform == Platform::tpu)
    message += " and TPU_LIBRARY_PATH are unset";
  else
    message += " is unset";
  message += ", and there is none in ";
  if (where.site_packages.empty()) message += "a virtual environment (VIRTUAL_ENV is unset, too)";
  std::vector<fs::path> told;  // several ways may lead to one folder
  for (const fs::path& folder : where.site_packages) {
    std::error_code ignored;
    const fs::path one = fs::weakly_canonical(folder, ignored);
    if (std::find(told.begin(), told.end(), one) != told.end()) continue;
    message += (told.empty() ? "" : ", ") + folder.string();
    told.push_back(one);
  }
  return message + ". Install one into the active virtual environment: pip install --no-deps " +
         wheels_of(platform).front().name + "; or set IVME_PJRT_PLUGIN to its path.";
}

}  // namespace

const char* name_of(Platform platform) {
  if (platform == Platform::tpu) return "tpu";
  if (platform == Platform::cuda) return "cuda";
  return "cpu";
}

PluginSearch plugin_search() {
  PluginSearch where;
  if (const auto active = where.read("VIRTUAL_ENV")) add_environment(where.site_packages, *active);
  constexpr std::string_view of_the_build = IVME_PJRT_WHEELS;
  if (!of_the_build.empty()) where.site_packages.emplace_back(of_the_build);
  std::error_code ignored;
  fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int level = 0; level < 4; ++level, folder = folder.parent_path())
    add_environment(where.site_packages, folder / ".venv");
  return where;
}

Plugin find_plugin(const PluginSearch& where) {
  const auto chosen = chosen_platform(where.read);
  if (const auto path = where.read("IVME_PJRT_PLUGIN"))
    return {chosen.value_or(platform_by_name(*path)), existing("IVME_PJRT_PLUGIN", *path)};
  if (!chosen && has_tpu(where.device_files))
    if (auto libtpu = plugin_of(Platform::tpu, where)) return {Platform::tpu, std::move(*libtpu)};
  const Platform platform = chosen.value_or(Platform::cpu);
  if (auto path = plugin_of(platform, where)) return {platform, std::move(*path)};
  throw Error(not_found(platform, where));
}

bool has_tpu(const fs::path& device_files) {
  const auto has_number = [](const fs::path& folder, std::string_view prefix) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.size() > prefix.size() &&
          std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                      [](unsigned char c) { return std::isdigit(c); }))
        return true;
    }
    return false;
  };
  return has_number(device_files, "accel") || has_number(device_files / "vfio", "");
}

}  // namespace ivme::xla
