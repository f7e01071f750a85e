#include "launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include "launch/usage_error.h"
#include "support/nearest.h"

namespace ivme::launch {
namespace {

void require_at_least_one(const char* flag, const std::optional<int>& value) {
  if (value && *value < 1) {
    throw UsageError(
        std::string(flag) + " " + std::to_string(*value) + " was asked, and it must be at least 1",
        std::string(flag) + " 1");
  }
}

void check(const LaunchOptions& o) {
  if (o.command.empty()) {
    throw UsageError("no program was named to launch", "ivme launch -n 2 ./train --epochs 3");
  }
  require_at_least_one("--num_processes", o.num_processes);
  require_at_least_one("--gradient_accumulation_steps", o.gradient_accumulation_steps);
  require_at_least_one("--num_cpu_threads_per_process", o.num_cpu_threads_per_process);
  if (o.main_process_port && (*o.main_process_port < 0 || *o.main_process_port > 65535)) {
    throw UsageError("--main_process_port " + std::to_string(*o.main_process_port) + " is not a port",
                     "a number from 1 to 65535, or leave it out for a free one");
  }
  static const std::vector<std::string> precisions = {"no", "bf16", "fp16"};
  if (o.mixed_precision && std::ranges::find(precisions, *o.mixed_precision) == precisions.end()) {
    throw UsageError(unknown_word("precision", *o.mixed_precision, precisions),
                     "--mixed_precision " + nearest(*o.mixed_precision, precisions).value_or("bf16"));
  }
}

int processes(const LaunchOptions& o) {
  if ((o.device == Device::xla || o.device == Device::tpu) && o.num_processes.value_or(1) > 1)
    throw UsageError("several workers were asked for on XLA, which this version drives one of",
                     "--num_processes 1, or --cpu");
  if (o.device != Device::gpu) return o.num_processes.value_or(1);
  const int gpus = visible_gpus();
  if (gpus == 0) throw UsageError("--gpu was asked, and no GPU was found", "--cpu");
  const int asked = o.num_processes.value_or(gpus);
  if (asked > gpus) {
    throw UsageError(std::to_string(asked) + " processes asked, " + std::to_string(gpus) +
                         (gpus == 1 ? " GPU found" : " GPUs found"),
                     "--num_processes " + std::to_string(gpus) + ", or --cpu");
  }
  return asked;
}

bool of_an_outer_launcher(std::string_view name) {
  return name.starts_with("TORCHELASTIC_") || name == "IVME_MASTER_LISTEN_FD" || name == "IVME_TTY" ||
         name == "GROUP_RANK" || name == "GROUP_WORLD_SIZE" || name == "ROLE_RANK" ||
         name == "ROLE_WORLD_SIZE";
}

}  // namespace

int visible_gpus() {
  int count = 0;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string_view list(visible);
    // CUDA stops at the first entry that is not a device: -1, or nothing at all.
    for (size_t begin = 0; begin < list.size() && list[begin] != '-' && list[begin] != ','; ++count) {
      begin = std::min(list.find(',', begin), list.size() - 1) + 1;
    }
    return count;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it("/dev", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    count += name.starts_with("nvidia") && name.size() > 6 &&
             std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  return count;
}

Plan make_plan(const LaunchOptions& o) {
  check(o);
  Plan plan;
  plan.num_processes = processes(o);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  plan.threads = o.num_cpu_threads_per_process.value_or(std::max(1, cores / plan.num_processes));
  return plan;
}

std::vector<std::string> rank_environment(const LaunchOptions& o, const Plan& plan, int rank) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    if (of_an_outer_launcher(name)) continue;
    variables.emplace(name, text.substr(std::min(equals + 1, text.size())));
  }
  const auto set = [&](const char* name, const std::string& value) { variables[name] = value; };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(plan.num_processes));
  set("LOCAL_WORLD_SIZE", std::to_string(plan.num_processes));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(plan.port));
  set("IVME_LAUNCHED", "1");
  if (o.num_cpu_threads_per_process || !variables.contains("OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", std::to_string(plan.threads));
  }
  if (o.device != Device::any) {
    set("IVME_DEVICE", o.device == Device::cpu   ? "cpu"
                       : o.device == Device::gpu ? "cuda"
                       : o.device == Device::tpu ? "tpu"
                                                 : "xla");
    set("ACCELERATE_USE_CPU", o.device == Device::cpu ? "true" : "false");
  }
  if (o.xla_platform) set("PJRT_DEVICE", *o.xla_platform);
  if (o.mixed_precision) set("ACCELERATE_MIXED_PRECISION", *o.mixed_precision);
  if (o.gradient_accumulation_steps) {
    set("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", std::to_string(*o.gradient_accumulation_steps));
  }
  if (rank == 0) {
    set("IVME_MASTER_LISTEN_FD", std::to_string(plan.listen_fd));
    if (plan.terminal_width > 0) {
      set("IVME_TTY", "1");
      set("COLUMNS", std::to_string(plan.terminal_width));
    }
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

}  // namespace ivme::launch
