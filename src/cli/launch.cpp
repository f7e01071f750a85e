#include <algorithm>
#include <limits>
#include <utility>

#include "cli/commands.h"
#include "cli/flags.h"
#include "launch/launcher.h"
#include "launch/usage_error.h"
#include "support/nearest.h"

namespace ivme::cli {
namespace {

const Help help = {
    "ivme launch [options] PROGRAM [ARGUMENTS...]",
    "Starts PROGRAM on several processes of this machine and ends when all have ended. From PROGRAM on, all\n"
    "words belong to the program. The first process to fail stops the others, and its exit code (128 + "
    "signal if\n"
    "a signal ended it) is that of ivme launch.",
    "ivme launch --num_processes 2 --cpu --mixed_precision bf16 ./train --epochs 3"};

const std::vector<Flag> flags = {
    {"Common", "num_processes", 'n', "N", "Number of processes.", "1; with --gpu, the number of GPUs",
     "WORLD_SIZE"},
    {"Common", "cpu", 0, nullptr, "Train on CPUs.", "the program chooses", "IVME_DEVICE, ACCELERATE_USE_CPU"},
    {"Common", "gpu", 0, nullptr, "Train on GPUs, one a process.", "the program chooses", "IVME_DEVICE"},
    {"Common", "xla", 0, "=cpu|tpu|cuda", "Train through XLA, one process for all its devices.",
     "the program chooses; of the platforms, PJRT_DEVICE or a TPU or else the CPU",
     "IVME_DEVICE, PJRT_DEVICE"},
    {"Common", "tpu", 0, nullptr, "Train on a TPU; with PJRT_DEVICE=CPU set, on the CPU as if on one.",
     "the program chooses", "IVME_DEVICE"},
    {"Common", "mixed_precision", 0, "no|bf16|fp16", "Precision of the forward pass.",
     "the program's, else no", "ACCELERATE_MIXED_PRECISION"},
    {"Common", "gradient_accumulation_steps", 0, "K", "Micro-batches per update.", "the program's, else 1",
     "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
    {"Output", "log_dir", 0, "FOLDER",
     "Also write each process's output, whole, to FOLDER/rank_0.out, .err, ....", "none", nullptr},
    {"Output", "tee", 0, nullptr, "Show the output of the other processes too, each line behind [rank 1].",
     "only that of rank 0", nullptr},
    {"Resources", "num_cpu_threads_per_process", 0, "T", "Threads of each process.",
     "OMP_NUM_THREADS if set, else cores / N, at least 1", "OMP_NUM_THREADS"},
    {"Resources", "main_process_port", 0, "PORT", "Port on 127.0.0.1 where the processes meet.", "a free one",
     "MASTER_PORT"},
};

std::optional<int> small_number(const Arguments& arguments, const char* name) {
  const auto number = arguments.number(name);
  if (!number) return std::nullopt;
  if (!std::in_range<int>(*number)) {
    throw launch::UsageError(std::string("--") + name + " " + std::to_string(*number) + " is out of range",
                             std::string("--") + name + " 2");
  }
  return static_cast<int>(*number);
}

std::optional<std::string> xla_platform(const Arguments& arguments) {
  const auto word = arguments.text("xla");
  if (!word || *word == "true") return std::nullopt;
  static const std::vector<std::string> platforms = {"cpu", "tpu", "cuda"};
  if (std::ranges::find(platforms, *word) == platforms.end())
    throw launch::UsageError(unknown_word("XLA platform", *word, platforms),
                             "--xla=" + nearest(*word, platforms).value_or("cpu"));
  return word;
}

}  // namespace

int launch(int argc, char** argv) {
  const Arguments arguments("launch", flags, argc, argv);
  if (arguments.wants_help()) {
    print_help(help, flags);
    return 0;
  }
  std::vector<std::string> devices;
  for (const char* device : {"cpu", "gpu", "xla", "tpu"})
    if (arguments.has(device)) devices.push_back(std::string("--") + device);
  if (devices.size() > 1)
    throw launch::UsageError(devices[0] + " and " + devices[1] + " were both asked", "one of them");
  launch::LaunchOptions options;
  options.command = arguments.rest();
  options.num_processes = small_number(arguments, "num_processes");
  if (arguments.has("cpu")) options.device = launch::Device::cpu;
  if (arguments.has("gpu")) options.device = launch::Device::gpu;
  if (arguments.has("xla")) options.device = launch::Device::xla;
  if (arguments.has("tpu")) options.device = launch::Device::tpu;
  options.xla_platform = xla_platform(arguments);
  options.mixed_precision = arguments.text("mixed_precision");
  options.gradient_accumulation_steps = small_number(arguments, "gradient_accumulation_steps");
  options.num_cpu_threads_per_process = small_number(arguments, "num_cpu_threads_per_process");
  options.main_process_port = small_number(arguments, "main_process_port");
  options.log_dir = arguments.text("log_dir").value_or("");
  options.tee = arguments.has("tee");
  return launch::run(options);
}

}  // namespace ivme::cli
