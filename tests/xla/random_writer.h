#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "random_program.h"

namespace ivme::test {

// "{1, 2}", and "1, 2" for a call's arguments.
std::string list(at::IntArrayRef values);
std::string arguments(at::IntArrayRef values);
std::string name_of(size_t tensor);  // "t3"

// The largest absolute value; 0 for a tensor without elements.
double magnitude(const at::Tensor& tensor);
constexpr double largest_magnitude = 100;

// No value lies where rounding would decide to which whole number, or side of the other value, it goes.
bool clear_of_whole_numbers(const at::Tensor& tensor);
bool clear_of_each_other(const at::Tensor& a, const at::Tensor& b);

// Writes one program, running each line on the CPU as it is written. A line that would leave the magnitudes,
// or on which machines may disagree, is not written: each method writes one line or none.
class RandomWriter {
 public:
  RandomWriter(uint64_t seed, int lines);
  RandomProgram program() && { return std::move(program_); }

 private:
  using Tensors = std::vector<at::Tensor>;
  using Expression = std::function<at::Tensor(const Tensors&)>;

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int64_t in) { return below(in) == 0; }
  // Late tensors more often: they are views of views.
  size_t pick() {
    auto count = static_cast<int64_t>(tensors_.size());
    return static_cast<size_t>(std::max(below(count), below(count)));
  }
  // Any for which this holds, if there is one.
  template <class Condition>
  std::optional<size_t> pick_where(Condition condition) {
    std::vector<size_t> found;
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (condition(tensors_[i])) found.push_back(i);
    if (found.empty()) return std::nullopt;
    return found[static_cast<size_t>(below(static_cast<int64_t>(found.size())))];
  }
  const at::Tensor& at(size_t index) const { return tensors_[index]; }
  int64_t dim_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 0 : below(tensor.dim()); }
  // A part of `size`, rarely without elements.
  std::pair<int64_t, int64_t> part_of(int64_t size);
  at::Tensor new_input();

  void write_line();
  void add(std::string text, std::function<void(Tensors&)> run);
  void define(const std::string& expression, Expression value);
  void define_computed(const std::string& expression, const Expression& value);

  // random_views.cpp
  void view(size_t x);
  void reshape(size_t x);
  void odd_view(size_t x);
  void as_strided(size_t x);
  void write(size_t x);
  void write_from_another(size_t x);
  void assign_rows(size_t x);

  // random_program.cpp
  void binary(size_t x, size_t y);
  void unary(size_t x);
  void reduction(size_t x);
  void selection(size_t x, size_t y);
  void product(size_t x);
  void conversion(size_t x);

  std::mt19937_64 random_;
  at::ScalarType floating_;
  Tensors tensors_;
  RandomProgram program_;
};

}  // namespace ivme::test
