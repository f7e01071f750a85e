#pragma once
#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Programs of views, writes through views and computations, made up at random. Running one on any device
// gives the same tensors.
namespace ivme::test {

// One line of a program: changes one of the tensors, or adds one.
struct Line {
  std::string text;  // as C++
  std::function<void(std::vector<at::Tensor>& tensors)> run;
};

struct RandomProgram {
  uint64_t seed = 0;
  // An as_strided sees memory that its tensor, a view, does not: PyTorch knows no gradient of that.
  bool reaches_beyond_a_view = false;
  std::vector<at::Tensor> inputs;   // on the CPU: what the lines begin with
  std::vector<at::Tensor> results;  // on the CPU: all the tensors when the lines have run
  std::vector<Line> lines;

  std::string text() const;
};

// The same program for the same seed. Values stay within a few hundred and clear of where a function jumps,
// so that two correct machines agree to rounding.
RandomProgram make_random_program(uint64_t seed, int lines);

}  // namespace ivme::test
