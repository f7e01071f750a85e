#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <charconv>
#include <iostream>
#include <set>

#include "accelerator/state.h"
#include "process/environment.h"
#include "support/nearest.h"

namespace ivme::detail {
namespace {

// Once per process and subject.
void warn_once(const std::string& subject, const std::string& sentence) {
  static std::set<std::string> said;
  if (said.insert(subject).second) std::cerr << "ivme: " << sentence << std::endl;
}

template <class T, class Parse>
T decide_one(const std::optional<T>& in_code, const char* variable, const T& fallback, Parse parse,
             bool main) {
  auto text = read_environment(variable);
  if (!text) return in_code.value_or(fallback);
  T from_environment = parse(*text);
  if (!in_code) return from_environment;
  if (*in_code != from_environment && main)
    warn_once(variable, std::string(variable) + "=" + *text +
                            " is set, but the program gives another value itself; the program's is used.");
  return *in_code;
}

int64_t parse_count(const std::string& variable, const std::string& text) {
  int64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size())
    throw Error("The environment says " + variable + "=" + text +
                ", which is not a whole number. Set it to 1 or more.");
  return value;
}

std::string device_word(const AcceleratorOptions& options, bool main) {
  if (auto cpu = read_environment("ACCELERATE_USE_CPU");
      cpu && is_true("ACCELERATE_USE_CPU", *cpu) && !options.device && !read_environment("IVME_DEVICE"))
    return "cpu";
  auto same = [](const std::string& text) { return text; };
  // torch_xla's programs are started with this variable alone.
  std::string fallback = read_environment("PJRT_DEVICE") ? "xla" : at::hasCUDA() ? "cuda" : "cpu";
  return decide_one<std::string>(options.device, "IVME_DEVICE", fallback, same, main);
}

c10::Device device_of(std::string word, const ProcessFacts& facts) {
  if (word == "gpu") word = "cuda";
  if (word == "cpu") return c10::Device(c10::kCPU);
  if (word == "xla" || word == "tpu") {
    if (facts.num_processes > 1)
      throw Error("The device " + word + " was asked for in one of " + std::to_string(facts.num_processes) +
                  " processes. On XLA one process drives all devices of a host: start the program once.");
    return c10::Device(c10::kXLA, 0);
  }
  if (word != "cuda") {
    const std::vector<std::string> choices = {"cpu", "cuda", "xla", "tpu"};
    throw Error(unknown_word("device", word, choices) + ".");
  }
  if (!at::hasCUDA())
    throw Error(
        "A GPU was asked for, but this libtorch sees none. Check the driver and that libtorch is a CUDA "
        "build, or use --cpu.");
  const c10::DeviceIndex count = at::detail::getCUDAHooks().deviceCount();
  if (facts.local_num_processes > count)
    throw Error(std::to_string(facts.local_num_processes) +
                " processes were asked for on this host, but it has " + std::to_string(count) +
                " GPUs. Use --num_processes " + std::to_string(count) + ", or --cpu.");
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(facts.local_process_index));
}

std::chrono::milliseconds decide_timeout(const AcceleratorOptions& options, const c10::Device& device) {
  auto fallback =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::minutes(device.is_cuda() ? 10 : 30));
  if (options.timeout) return *options.timeout;
  auto text = read_environment("IVME_TIMEOUT");
  if (!text) return fallback;
  double seconds = 0;
  auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (failure != std::errc() || end != text->data() + text->size() || !(seconds > 0))
    throw Error("The environment says IVME_TIMEOUT=" + *text +
                ", which is not a positive number of seconds.");
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

Settings decide(const AcceleratorOptions& options, const ProcessFacts& facts) {
  Settings settings;
  bool main = facts.process_index == 0;
  settings.precision = decide_one<Precision>(options.mixed_precision, "ACCELERATE_MIXED_PRECISION",
                                             Precision::no, parse_precision, main);
  if (settings.precision == Precision::fp16)
    throw Error(
        "mixed_precision fp16 was asked for, but it needs a gradient scaler, which this version of ivme does "
        "not have yet. "
        "Use bf16, which needs none.");
  settings.accumulation = decide_one<int64_t>(
      options.gradient_accumulation_steps, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", 1,
      [](const std::string& text) { return parse_count("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", text); },
      main);
  if (settings.accumulation < 1)
    throw Error("gradient_accumulation_steps is " + std::to_string(settings.accumulation) +
                ". It must be at least 1.");
  if (options.record_every < 1)
    throw Error("record_every is " + std::to_string(options.record_every) + ". It must be at least 1 step.");
  if (!(options.data_parallel.bucket_cap_mb > 0))
    throw Error("bucket_cap_mb is " + std::to_string(options.data_parallel.bucket_cap_mb) +
                ". It must be positive.");
  settings.max_programs = decide_one<int64_t>(
      options.max_programs, "IVME_XLA_MAX_PROGRAMS", 0,
      [](const std::string& text) { return parse_count("IVME_XLA_MAX_PROGRAMS", text); }, main);
  if (settings.max_programs < 0)
    throw Error("max_programs is " + std::to_string(settings.max_programs) +
                ". It must be at least 1, or unset.");
  const std::string word = device_word(options, main);
  settings.device = device_of(word, facts);
  settings.tpu = word == "tpu";
  settings.timeout = decide_timeout(options, settings.device);
  settings.record = options.record.value_or(read_environment("IVME_RECORD").value_or(""));
  return settings;
}

}  // namespace ivme::detail
