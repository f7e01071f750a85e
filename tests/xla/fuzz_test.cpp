// Programs of views and writes through views, at random, on xla against the CPU.
// IVME_FUZZ_SEED=N IVME_FUZZ_PROGRAMS=1 runs program N alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdlib>
#include <stdexcept>

#include "ivme/ivme.h"
#include "random_program.h"

namespace ivme {
namespace {

using test::RandomProgram;

constexpr uint64_t default_seed = 20260101;
constexpr uint64_t programs_in_a_recording = 25;

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

using Tensors = std::vector<at::Tensor>;

std::string describe(const RandomProgram& program) {
  return "IVME_FUZZ_SEED=" + std::to_string(program.seed) + "\n" + program.text();
}

// What it throws is thrown on together with the program.
template <class Part>
void run_part_of(const RandomProgram& program, Part part) {
  try {
    part();
  } catch (const std::exception& error) {
    throw std::runtime_error(describe(program) + error.what());
  }
}

// The programs' inputs on xla, all in the accelerator's recording.
std::vector<Tensors> move_inputs(Accelerator& accelerator, const std::vector<RandomProgram>& programs) {
  Holder holder;
  for (const auto& program : programs)
    for (const at::Tensor& input : program.inputs) holder->hold(input.clone());
  accelerator.prepare(holder);
  auto inputs = holder->buffers();
  std::vector<Tensors> all;
  auto next = inputs.begin();
  for (const auto& program : programs) {
    auto end = next + static_cast<std::ptrdiff_t>(program.inputs.size());
    all.emplace_back(next, end);
    next = end;
  }
  return all;
}

// Runs the programs in one recording; with `cut` the step ends after half of their lines.
std::vector<Tensors> run_on_xla(const std::vector<RandomProgram>& programs, bool cut) {
  Accelerator accelerator({.device = "xla"});
  auto all = move_inputs(accelerator, programs);
  for (int half = 0; half < 2; ++half) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const auto& lines = programs[i].lines;
      size_t middle = cut ? lines.size() / 2 : lines.size();
      run_part_of(programs[i], [&] {
        for (size_t line = half ? middle : 0; line < (half ? lines.size() : middle); ++line)
          lines[line].run(all[i]);
      });
    }
    accelerator.end_step();
  }
  return all;
}

struct Range {
  uint64_t first = number_from("IVME_FUZZ_SEED", default_seed);
  uint64_t count;
};

template <class Check>
void for_batches_of_programs(const Range& range, int lines, Check check) {
  std::printf("IVME_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(range.first));
  for (uint64_t done = 0; done < range.count; done += programs_in_a_recording) {
    std::vector<RandomProgram> programs;
    for (uint64_t i = done; i < std::min(range.count, done + programs_in_a_recording); ++i)
      programs.push_back(test::make_random_program(range.first + i, lines));
    check(programs, /*cut=*/done / programs_in_a_recording % 2 == 1);
  }
}

TEST(XlaFuzz, random_programs_give_the_tensors_of_the_cpu) {
  at::NoGradGuard no_grad;
  for_batches_of_programs(
      {.count = number_from("IVME_FUZZ_PROGRAMS", 300)}, 10,
      [](const std::vector<RandomProgram>& programs, bool cut) {
        auto tensors = run_on_xla(programs, cut);
        for (size_t i = 0; i < programs.size(); ++i)
          for (size_t t = 0; t < tensors[i].size(); ++t) {
            std::string wrong = difference(tensors[i][t], programs[i].results[t], tolerance_of(programs[i]));
            EXPECT_TRUE(wrong.empty()) << "t" << t << " " << wrong << "\n" << describe(programs[i]);
          }
      });
}

// A sum in which each element of each result that has a gradient weighs something else.
at::Tensor weigh(const Tensors& results) {
  at::Tensor total;
  for (const at::Tensor& result : results) {
    if (!result.requires_grad() || result.numel() == 0) continue;
    auto weights = at::arange(result.numel()).to(at::kDouble).add(1).cos().view(result.sizes());
    auto sum = (result.to(at::kDouble) * weights.to(result.device())).sum();
    total = total.defined() ? total + sum : sum;
  }
  return total;
}

// Runs a program on copies of these inputs; those of floating point become leaves.
at::Tensor weighed_result(const RandomProgram& program, Tensors& inputs) {
  Tensors tensors;
  for (at::Tensor& input : inputs) {
    if (input.is_floating_point()) input.requires_grad_();
    tensors.push_back(input.clone());
  }
  for (const auto& line : program.lines) line.run(tensors);
  return weigh(tensors);
}

// The gradients of a program's inputs on the CPU; empty where PyTorch refuses, since a line overwrites what
// the gradient of another one needs, and where there is none.
Tensors gradients_on_the_cpu(const RandomProgram& program) {
  if (program.reaches_beyond_a_view) return {};
  Tensors inputs, gradients;
  for (const at::Tensor& input : program.inputs) inputs.push_back(input.clone());
  try {
    auto result = weighed_result(program, inputs);
    if (!result.defined()) return {};
    result.backward();
  } catch (const c10::Error&) {
    return {};
  }
  for (const at::Tensor& input : inputs) gradients.push_back(input.grad());
  return gradients;
}

TEST(XlaFuzz, random_programs_have_the_gradients_of_the_cpu) {
  size_t compared = 0;
  Range range{.count = number_from("IVME_FUZZ_PROGRAMS", 150)};
  for_batches_of_programs(range, 8, [&](const std::vector<RandomProgram>& all, bool) {
    std::vector<RandomProgram> programs;
    std::vector<Tensors> expected;
    for (const auto& program : all) {
      auto gradients = gradients_on_the_cpu(program);
      if (gradients.empty()) continue;
      programs.push_back(program);
      expected.push_back(std::move(gradients));
    }
    Accelerator accelerator({.device = "xla"});
    auto inputs = move_inputs(accelerator, programs);
    for (size_t i = 0; i < programs.size(); ++i)
      run_part_of(programs[i], [&] { weighed_result(programs[i], inputs[i]).backward(); });
    accelerator.end_step();
    for (size_t i = 0; i < programs.size(); ++i)
      for (size_t t = 0; t < inputs[i].size(); ++t) {
        ASSERT_EQ(inputs[i][t].grad().defined(), expected[i][t].defined()) << describe(programs[i]);
        if (!expected[i][t].defined()) continue;
        ++compared;
        std::string wrong = difference(inputs[i][t].grad(), expected[i][t], tolerance_of(programs[i]));
        EXPECT_TRUE(wrong.empty()) << "gradient of t" << t << " " << wrong << "\n" << describe(programs[i]);
      }
  });
  std::printf("compared %zu gradients\n", compared);
  EXPECT_GE(compared, range.count / 2);
}

}  // namespace
}  // namespace ivme
