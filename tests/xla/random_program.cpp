#include "random_program.h"

#include <algorithm>
#include <cmath>

#include "random_writer.h"

namespace ivme::test {

std::string list(at::IntArrayRef values) {
  std::string text = "{";
  for (int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}

std::string arguments(at::IntArrayRef values) {
  std::string text = list(values);
  return text.substr(1, text.size() - 2);
}

std::string name_of(size_t tensor) { return "t" + std::to_string(tensor); }

double magnitude(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

bool clear_of_whole_numbers(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  auto values = tensor.to(at::kDouble);
  return (values - values.round()).abs().min().item<double>() > 1e-3;
}
bool clear_of_each_other(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point() && !b.is_floating_point()) return true;
  auto distance = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  return distance.numel() == 0 || distance.min().item<double>() > 1e-3;
}

RandomWriter::RandomWriter(uint64_t seed, int lines)
    : random_(seed), floating_(chance(4) ? at::kDouble : at::kFloat) {
  program_.seed = seed;
  for (int i = 0; i < 3; ++i) tensors_.push_back(new_input());
  for (const at::Tensor& tensor : tensors_) program_.inputs.push_back(tensor.clone());
  for (int tries = 0; tries < 40 * lines && static_cast<int>(program_.lines.size()) < lines; ++tries)
    write_line();
  program_.results = std::move(tensors_);
}

at::Tensor RandomWriter::new_input() {
  const at::ScalarType types[] = {floating_, floating_, floating_, at::kDouble,
                                  at::kLong, at::kInt,  at::kByte, at::kBool};
  std::vector<int64_t> sizes(static_cast<size_t>(below(5)));
  for (int64_t& size : sizes) size = chance(60) ? 0 : 1 + below(4);
  auto tensor = at::empty(sizes, at::kDouble);
  double* data = tensor.data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<double>(below(60001) - 30000) / 10000;
  at::ScalarType type = types[below(8)];
  if (type == at::kBool) return tensor > 0;
  return type == at::kByte ? tensor.abs().to(type) : tensor.to(type);
}

void RandomWriter::write_line() {
  size_t x = pick();
  // Another one, or the same, that it can be computed with.
  auto with = [&](size_t one) {
    return *pick_where([&](const at::Tensor& y) { return at::are_expandable(at(one).sizes(), y.sizes()); });
  };
  switch (below(12)) {
    case 0:
    case 1:
    case 2:
      return view(x);
    case 3:
      return odd_view(x);
    case 4:
    case 5:
    case 6:
      return write(x);
    case 7:
      return binary(x, with(x));
    case 8:
      return unary(x);
    case 9:
      return reduction(x);
    case 10:
      return selection(x, with(x));
    default:
      return chance(2) ? product(x) : conversion(x);
  }
}

void RandomWriter::add(std::string text, std::function<void(Tensors&)> run) {
  run(tensors_);
  program_.lines.push_back({std::move(text), std::move(run)});
}

void RandomWriter::define(const std::string& expression, Expression value) {
  add("auto " + name_of(tensors_.size()) + " = " + expression + ";",
      [value = std::move(value)](Tensors& tensors) { tensors.push_back(value(tensors)); });
}

// A copy, whose memory is in order: on xla all memory is.
void RandomWriter::define_computed(const std::string& expression, const Expression& value) {
  define(expression,
         [value](const Tensors& tensors) { return value(tensors).clone(at::MemoryFormat::Contiguous); });
}

void RandomWriter::binary(size_t x, size_t y) {
  const at::Tensor &a = at(x), &b = at(y);
  if (!at::are_expandable(a.sizes(), b.sizes())) return;
  bool logical = a.scalar_type() == at::kBool || b.scalar_type() == at::kBool;
  bool byte = a.scalar_type() == at::kByte || b.scalar_type() == at::kByte;
  double sum = magnitude(a) + magnitude(b);
  std::string p = name_of(x), q = name_of(y);
  switch (below(6)) {
    case 0:
      if (sum > largest_magnitude) return;
      return define_computed(p + " + " + q, [=](const Tensors& t) { return t[x] + t[y]; });
    case 1:
      if (sum > largest_magnitude || logical || byte) return;
      return define_computed(p + " - " + q, [=](const Tensors& t) { return t[x] - t[y]; });
    case 2:
      if (magnitude(a) * magnitude(b) > largest_magnitude) return;
      return define_computed(p + " * " + q, [=](const Tensors& t) { return t[x] * t[y]; });
    case 3:
      if (byte || logical) return;
      return define_computed(p + " / (" + q + ".abs() + 1)",
                             [=](const Tensors& t) { return t[x] / (t[y].abs() + 1); });
    case 4:
      return define_computed("at::maximum(" + p + ", " + q + ")",
                             [=](const Tensors& t) { return at::maximum(t[x], t[y]); });
    default:
      if (!clear_of_each_other(a, b)) return;
      return define_computed(p + " < " + q, [=](const Tensors& t) { return t[x] < t[y]; });
  }
}

void RandomWriter::unary(size_t x) {
  std::string self = name_of(x);
  int64_t d = dim_of(at(x));
  at::ScalarType type = at(x).scalar_type();
  switch (below(5)) {
    case 0:
      return define_computed(self + ".tanh()", [=](const Tensors& t) { return t[x].tanh(); });
    case 1:
      return define_computed(self + ".sigmoid()", [=](const Tensors& t) { return t[x].sigmoid(); });
    case 2:
      if (type == at::kBool || type == at::kByte) return;
      return define_computed("-" + self, [=](const Tensors& t) { return -t[x]; });
    case 3:
      if (at(x).dim() == 0) return;
      return define_computed(self + ".flip({" + std::to_string(d) + "})",
                             [=](const Tensors& t) { return t[x].flip({d}); });
    default:
      return define_computed(self + ".clone()", [=](const Tensors& t) { return t[x].clone(); });
  }
}

void RandomWriter::reduction(size_t x) {
  const at::Tensor& tensor = at(x);
  if (tensor.numel() == 0 || magnitude(tensor) * static_cast<double>(tensor.numel()) > largest_magnitude)
    return;
  int64_t d = dim_of(tensor);
  bool keep = chance(2);
  std::string how = "({" + std::to_string(d) + "}, " + (keep ? "true)" : "false)");
  switch (below(4)) {
    case 0:
      return define_computed(name_of(x) + ".sum" + how,
                             [=](const Tensors& t) { return t[x].sum({d}, keep); });
    case 1:
      if (!tensor.is_floating_point()) return;
      return define_computed(name_of(x) + ".mean" + how,
                             [=](const Tensors& t) { return t[x].mean({d}, keep); });
    case 2:
      return define_computed(name_of(x) + ".amax" + how,
                             [=](const Tensors& t) { return t[x].amax({d}, keep); });
    default:
      return define_computed(name_of(x) + ".sum()", [=](const Tensors& t) { return t[x].sum(); });
  }
}

void RandomWriter::selection(size_t x, size_t y) {
  const at::Tensor &a = at(x), &b = at(y);
  std::string both = name_of(x) + ", " + name_of(y);
  if (a.dim() > 0 && a.sizes() == b.sizes() && chance(2)) {
    int64_t d = dim_of(a);
    return define_computed("at::cat({" + both + "}, " + std::to_string(d) + ")",
                           [=](const Tensors& t) { return at::cat({t[x], t[y]}, d); });
  }
  if (!at::are_expandable(a.sizes(), b.sizes()) || !clear_of_each_other(a, at::zeros({}))) return;
  define_computed("at::where(" + name_of(x) + " > 0, " + both + ")",
                  [=](const Tensors& t) { return at::where(t[x] > 0, t[x], t[y]); });
}

// x xᵀ of the last two dimensions.
void RandomWriter::product(size_t x) {
  const at::Tensor& tensor = at(x);
  if (tensor.dim() < 2 || !tensor.is_floating_point()) return;
  if (std::pow(magnitude(tensor), 2) * static_cast<double>(tensor.size(-1)) > largest_magnitude) return;
  define_computed("at::matmul(" + name_of(x) + ", " + name_of(x) + ".transpose(-1, -2))",
                  [=](const Tensors& t) { return at::matmul(t[x], t[x].transpose(-1, -2)); });
}

void RandomWriter::conversion(size_t x) {
  constexpr std::pair<at::ScalarType, const char*> types[] = {{at::kFloat, "at::kFloat"},
                                                              {at::kDouble, "at::kDouble"},
                                                              {at::kLong, "at::kLong"},
                                                              {at::kInt, "at::kInt"}};
  auto [type, type_name] = types[below(4)];
  if (at::isIntegralType(type, true) && !clear_of_whole_numbers(at(x))) return;
  define_computed(name_of(x) + ".to(" + type_name + ")",
                  [x, type = type](const Tensors& t) { return t[x].to(type); });
}

std::string RandomProgram::text() const {
  std::string all;
  for (size_t i = 0; i < inputs.size(); ++i)
    all += "auto " + name_of(i) + " = input of " + list(inputs[i].sizes()) + ", " +
           c10::toString(inputs[i].scalar_type()) + ";\n";
  for (const Line& line : lines) all += line.text + "\n";
  return all;
}

RandomProgram make_random_program(uint64_t seed, int lines) { return RandomWriter(seed, lines).program(); }

}  // namespace ivme::test
