// Programs of views and writes through views, at random, on xla against the CPU.
// IVME_FUZZ_SEED=N IVME_FUZZ_PROGRAMS=1 runs program N alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdlib>

#include "ivme/ivme.h"
#include "random_program.h"

namespace ivme {
namespace {

using test::RandomProgram;

constexpr uint64_t default_seed = 20260101;
constexpr int programs_in_a_recording = 25;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Preparing it makes its tensors part of the accelerator's recording.
struct HolderImpl : torch::nn::Module {
  void hold(const at::Tensor& tensor) { register_buffer("t" + std::to_string(buffers().size()), tensor); }
};
TORCH_MODULE(Holder);

// Of the largest element: rounding of the least precise type that the program computes in.
double tolerance_of(const RandomProgram& program) {
  for (const at::Tensor& tensor : program.results)
    if (tensor.scalar_type() == at::kFloat) return 1e-5;
  return 1e-12;
}

// What is wrong with the tensor; nothing when it equals the expected one.
std::string difference(const at::Tensor& tensor, const at::Tensor& expected, double tolerance) {
  if (tensor.scalar_type() != expected.scalar_type())
    return c10::str("has type ", tensor.scalar_type(), " instead of ", expected.scalar_type());
  if (tensor.sizes() != expected.sizes())
    return c10::str("has sizes ", tensor.sizes(), " instead of ", expected.sizes());
  auto values = tensor.cpu();
  if (!expected.is_floating_point())
    return at::equal(values, expected) ? "" : c10::str("is\n", values, "\ninstead of\n", expected);
  if (expected.numel() == 0) return "";
  double far = (values - expected).abs().max().item<double>();
  if (far <= tolerance * std::max(1.0, expected.abs().max().item<double>())) return "";
  return c10::str("is\n", values, "\ninstead of\n", expected, "\nand off by ", far);
}

// Runs the programs in one recording; with `cut` the step ends after half of their lines.
void run_on_xla(const std::vector<RandomProgram>& programs, bool cut,
                std::vector<std::vector<at::Tensor>>& all) {
  Accelerator accelerator({.device = "xla"});
  Holder holder;
  for (const auto& program : programs)
    for (const at::Tensor& input : program.inputs) holder->hold(input.clone());
  accelerator.prepare(holder);
  auto inputs = holder->buffers();
  auto next = inputs.begin();
  for (const auto& program : programs) {
    auto end = next + static_cast<std::ptrdiff_t>(program.inputs.size());
    all.emplace_back(next, end);
    next = end;
  }
  for (int half = 0; half < 2; ++half) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const auto& lines = programs[i].lines;
      size_t middle = cut ? lines.size() / 2 : lines.size();
      for (size_t line = half ? middle : 0; line < (half ? lines.size() : middle); ++line)
        lines[line].run(all[i]);
    }
    accelerator.end_step();
  }
}

TEST(XlaFuzz, random_programs_give_the_tensors_of_the_cpu) {
  at::NoGradGuard no_grad;
  const uint64_t first = number_from("IVME_FUZZ_SEED", default_seed);
  const uint64_t end = first + number_from("IVME_FUZZ_PROGRAMS", 300);
  std::printf("IVME_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(first));
  for (uint64_t seed = first; seed < end; seed += programs_in_a_recording) {
    std::vector<RandomProgram> programs;
    for (uint64_t one = seed; one < std::min(end, seed + programs_in_a_recording); ++one)
      programs.push_back(test::make_random_program(one, 12));
    std::vector<std::vector<at::Tensor>> tensors;
    run_on_xla(programs, /*cut=*/(seed - first) / programs_in_a_recording % 2 == 1, tensors);
    for (size_t i = 0; i < programs.size(); ++i)
      for (size_t t = 0; t < tensors[i].size(); ++t) {
        std::string wrong = difference(tensors[i][t], programs[i].results[t], tolerance_of(programs[i]));
        EXPECT_TRUE(wrong.empty()) << "IVME_FUZZ_SEED=" << seed + i << ", t" << t << " " << wrong << "\n"
                                   << programs[i].text();
      }
  }
}

}  // namespace
}  // namespace ivme
