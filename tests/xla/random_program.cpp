#include "random_program.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <unordered_set>

namespace ivme::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Expression = std::function<at::Tensor(const Tensors&)>;

constexpr double largest = 100;

std::string name(size_t index) { return "t" + std::to_string(index); }

std::string list(at::IntArrayRef values) {
  std::string text = "{";
  for (int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}

// "d, e" for a call's arguments.
std::string arguments(at::IntArrayRef values) {
  std::string text = list(values);
  return text.substr(1, text.size() - 2);
}

double magnitude(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

// No value lies where rounding would decide to which whole number, or side of zero, it goes.
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

// Two elements of the tensor are one in memory: such a tensor may not be written.
bool overlaps_itself(const at::Tensor& tensor) {
  std::vector<int64_t> offsets = {0};
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    std::vector<int64_t> more;
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < tensor.size(dim); ++i) more.push_back(offset + i * tensor.stride(dim));
    offsets = std::move(more);
  }
  return std::unordered_set<int64_t>(offsets.begin(), offsets.end()).size() != offsets.size();
}

class Writer {
 public:
  Writer(uint64_t seed, int lines) : random_(seed) {
    floating_ = chance(4) ? at::kDouble : at::kFloat;
    for (int i = 0; i < 3; ++i) tensors_.push_back(new_input());
    for (const at::Tensor& tensor : tensors_) program_.inputs.push_back(tensor.clone());
    for (int tries = 0; tries < 40 * lines && static_cast<int>(program_.lines.size()) < lines; ++tries)
      write_line();
    program_.results = std::move(tensors_);
  }
  RandomProgram program() && { return std::move(program_); }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int64_t in) { return below(in) == 0; }

  at::Tensor new_input() {
    const at::ScalarType types[] = {floating_, floating_, floating_, at::kDouble,
                                    at::kLong, at::kInt,  at::kByte, at::kBool};
    std::vector<int64_t> sizes(static_cast<size_t>(below(5)));
    for (int64_t& size : sizes) size = chance(30) ? 0 : 1 + below(4);
    auto tensor = at::empty(sizes, at::kDouble);
    double* data = tensor.data_ptr<double>();
    for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<double>(below(60001) - 30000) / 10000;
    at::ScalarType type = types[below(8)];
    if (type == at::kBool) return tensor > 0;
    return type == at::kByte ? tensor.abs().to(type) : tensor.to(type);
  }

  void write_line() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return view(pick());
      case 3:
        return odd_view(pick());
      case 4:
      case 5:
      case 6:
        return write(pick());
      case 7:
        return binary(pick(), pick());
      case 8:
        return unary(pick());
      case 9:
        return reduction(pick());
      case 10:
        return selection(pick(), pick());
      default:
        return chance(2) ? product(pick()) : conversion(pick());
    }
  }

  // Late tensors more often: they are views of views.
  size_t pick() {
    auto count = static_cast<int64_t>(tensors_.size());
    return static_cast<size_t>(std::max(below(count), below(count)));
  }
  const at::Tensor& at(size_t index) const { return tensors_[index]; }
  int64_t dim_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 0 : below(tensor.dim()); }

  void add(std::string text, std::function<void(Tensors&)> run) {
    run(tensors_);
    program_.lines.push_back({std::move(text), std::move(run)});
  }
  void define(const std::string& expression, Expression value) {
    add("auto " + name(tensors_.size()) + " = " + expression + ";",
        [value = std::move(value)](Tensors& tensors) { tensors.push_back(value(tensors)); });
  }
  // Results lie in memory in order: on xla they always do.
  void define_computed(const std::string& expression, const Expression& value) {
    define(expression, [value](const Tensors& tensors) { return value(tensors).contiguous(); });
  }

  void view(size_t x) {
    const at::Tensor& tensor = at(x);
    int64_t d = dim_of(tensor), e = dim_of(tensor);
    std::string self = name(x);
    switch (below(9)) {
      case 0:
        return define(self + ".transpose(" + arguments({d, e}) + ")",
                      [=](const Tensors& t) { return t[x].transpose(d, e); });
      case 1: {
        std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
        std::shuffle(order.begin(), order.end(), random_);
        return define(self + ".permute(" + list(order) + ")",
                      [=](const Tensors& t) { return t[x].permute(order); });
      }
      case 2: {
        if (tensor.dim() == 0) return;
        int64_t start = below(tensor.size(d) + 1), step = 1 + below(3);
        int64_t end = start + below(tensor.size(d) - start + 1);
        return define(self + ".slice(" + arguments({d, start, end, step}) + ")",
                      [=](const Tensors& t) { return t[x].slice(d, start, end, step); });
      }
      case 3: {
        if (tensor.dim() == 0 || tensor.size(d) == 0) return;
        int64_t i = below(tensor.size(d));
        return define(self + ".select(" + arguments({d, i}) + ")",
                      [=](const Tensors& t) { return t[x].select(d, i); });
      }
      case 4: {
        if (tensor.dim() > 4) return;
        std::vector<int64_t> sizes = tensor.sizes().vec();
        for (int64_t& size : sizes)
          if (size == 1) size = 1 + below(3);
        if (chance(2)) sizes.insert(sizes.begin(), 1 + below(3));
        return define(self + ".expand(" + list(sizes) + ")",
                      [=](const Tensors& t) { return t[x].expand(sizes); });
      }
      case 5: {
        if (tensor.dim() > 4) return;
        int64_t at_dim = below(tensor.dim() + 1);
        return define(self + ".unsqueeze(" + std::to_string(at_dim) + ")",
                      [=](const Tensors& t) { return t[x].unsqueeze(at_dim); });
      }
      case 6: {
        if (tensor.dim() == 0) return;
        int64_t start = below(tensor.size(d) + 1), length = below(tensor.size(d) - start + 1);
        return define(self + ".narrow(" + arguments({d, start, length}) + ")",
                      [=](const Tensors& t) { return t[x].narrow(d, start, length); });
      }
      case 7:
        if (tensor.dim() > 2) return;
        return define(self + ".t()", [=](const Tensors& t) { return t[x].t(); });
      default:
        return reshape(x);
    }
  }

  void reshape(size_t x) {
    std::vector<int64_t> sizes;
    int64_t rest = at(x).numel();
    if (rest == 0) return;
    for (int64_t divisor : {2, 3, 4, 5})
      if (rest % divisor == 0 && chance(2)) sizes.push_back(divisor), rest /= divisor;
    sizes.insert(sizes.begin() + below(static_cast<int64_t>(sizes.size()) + 1), -1);
    if (at(x).is_contiguous() && chance(2))
      return define(name(x) + ".view(" + list(sizes) + ")",
                    [=](const Tensors& t) { return t[x].view(sizes); });
    define(name(x) + ".reshape(" + list(sizes) + ")", [=](const Tensors& t) { return t[x].reshape(sizes); });
  }

  void odd_view(size_t x) {
    const at::Tensor& tensor = at(x);
    if (tensor.dim() == 0 || tensor.dim() > 4 || tensor.numel() == 0) return;
    int64_t d = dim_of(tensor);
    switch (below(3)) {
      case 0: {
        int64_t e = dim_of(tensor), offset = below(3) - 1;
        if (d == e) return;
        return define(name(x) + ".diagonal(" + arguments({offset, d, e}) + ")",
                      [=](const Tensors& t) { return t[x].diagonal(offset, d, e); });
      }
      case 1: {
        int64_t size = 1 + below(tensor.size(d)), step = 1 + below(2);
        return define(name(x) + ".unfold(" + arguments({d, size, step}) + ")",
                      [=](const Tensors& t) { return t[x].unfold(d, size, step); });
      }
      default:
        return as_strided(x);
    }
  }

  // Anywhere within the storage.
  void as_strided(size_t x) {
    auto storage = static_cast<int64_t>(at(x).storage().nbytes() / at(x).element_size());
    std::vector<int64_t> sizes(static_cast<size_t>(1 + below(3))), strides(sizes.size());
    int64_t offset = below(storage), last = offset;
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = 1 + below(3), strides[i] = below(5);
      last += (sizes[i] - 1) * strides[i];
    }
    if (last >= storage) return;
    define(
        name(x) + ".as_strided(" + list(sizes) + ", " + list(strides) + ", " + std::to_string(offset) + ")",
        [=](const Tensors& t) { return t[x].as_strided(sizes, strides, offset); });
  }

  void write(size_t x) {
    const at::Tensor& tensor = at(x);
    if (overlaps_itself(tensor)) return;
    bool whole = !tensor.is_floating_point();
    double number = whole ? static_cast<double>(below(4)) : static_cast<double>(below(400)) / 100 + 0.003;
    std::string text = whole ? std::to_string(static_cast<int>(number)) : std::to_string(number);
    switch (below(5)) {
      case 0:
        return add(name(x) + ".fill_(" + text + ");", [=](Tensors& t) { t[x].fill_(number); });
      case 1:
        if (whole || magnitude(tensor) * number > largest) return;
        return add(name(x) + ".mul_(" + text + ");", [=](Tensors& t) { t[x].mul_(number); });
      default:
        return write_from(x, pick());
    }
  }

  void write_from(size_t x, size_t y) {
    const at::Tensor &to = at(x), &from = at(y);
    if (!at::is_expandable_to(from.sizes(), to.sizes()) || to.is_alias_of(from)) return;
    double a = magnitude(to), b = magnitude(from);
    bool byte = to.scalar_type() == at::kByte;  // small, and without a sign
    switch (below(4)) {
      case 0:
        if (a + 2 * b > largest || byte || !at::canCast(from.scalar_type(), to.scalar_type()) ||
            to.scalar_type() == at::kBool)
          return;
        return add(name(x) + ".add_(" + name(y) + ", 2);", [=](Tensors& t) { t[x].add_(t[y], 2); });
      case 1:
        if (a * b > largest || byte || !at::canCast(from.scalar_type(), to.scalar_type())) return;
        return add(name(x) + ".mul_(" + name(y) + ");", [=](Tensors& t) { t[x].mul_(t[y]); });
      case 2: {
        if (to.dim() == 0 || from.dim() > to.dim() - 1 || to.size(0) == 0) return;
        if (!fits(from, to) || !at::is_expandable_to(from.sizes(), to.sizes().slice(1))) return;
        int64_t i = below(to.size(0));
        return add(name(x) + ".index_put_({" + std::to_string(i) + "}, " + name(y) + ");",
                   [=](Tensors& t) { t[x].index_put_({i}, t[y]); });
      }
      default:
        if (!fits(from, to)) return;
        return add(name(x) + ".copy_(" + name(y) + ");", [=](Tensors& t) { t[x].copy_(t[y]); });
    }
  }

  // Its values can be converted to the other's type, and all machines agree on the outcome.
  static bool fits(const at::Tensor& from, const at::Tensor& to) {
    if (to.is_floating_point()) return true;
    if (to.scalar_type() == at::kByte && from.numel() && from.to(at::kDouble).min().item<double>() < 0)
      return false;
    return clear_of_whole_numbers(from);
  }

  void binary(size_t x, size_t y) {
    const at::Tensor &a = at(x), &b = at(y);
    if (!at::are_expandable(a.sizes(), b.sizes())) return;
    bool logical = a.scalar_type() == at::kBool || b.scalar_type() == at::kBool;
    bool byte = a.scalar_type() == at::kByte || b.scalar_type() == at::kByte;
    double sum = magnitude(a) + magnitude(b);
    std::string p = name(x), q = name(y);
    switch (below(6)) {
      case 0:
        if (sum > largest) return;
        return define_computed(p + " + " + q, [=](const Tensors& t) { return t[x] + t[y]; });
      case 1:
        if (sum > largest || logical || byte) return;
        return define_computed(p + " - " + q, [=](const Tensors& t) { return t[x] - t[y]; });
      case 2:
        if (magnitude(a) * magnitude(b) > largest) return;
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

  void unary(size_t x) {
    std::string self = name(x);
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

  void reduction(size_t x) {
    const at::Tensor& tensor = at(x);
    if (tensor.numel() == 0 || magnitude(tensor) * static_cast<double>(tensor.numel()) > largest) return;
    int64_t d = dim_of(tensor);
    bool keep = chance(2);
    std::string how = "({" + std::to_string(d) + "}, " + (keep ? "true)" : "false)");
    switch (below(4)) {
      case 0:
        return define_computed(name(x) + ".sum" + how, [=](const Tensors& t) { return t[x].sum({d}, keep); });
      case 1:
        if (!tensor.is_floating_point()) return;
        return define_computed(name(x) + ".mean" + how,
                               [=](const Tensors& t) { return t[x].mean({d}, keep); });
      case 2:
        return define_computed(name(x) + ".amax" + how,
                               [=](const Tensors& t) { return t[x].amax({d}, keep); });
      default:
        return define_computed(name(x) + ".sum()", [=](const Tensors& t) { return t[x].sum(); });
    }
  }

  void selection(size_t x, size_t y) {
    const at::Tensor &a = at(x), &b = at(y);
    std::string both = name(x) + ", " + name(y);
    if (a.dim() > 0 && a.sizes() == b.sizes() && chance(2)) {
      int64_t d = dim_of(a);
      return define_computed("at::cat({" + both + "}, " + std::to_string(d) + ")",
                             [=](const Tensors& t) { return at::cat({t[x], t[y]}, d); });
    }
    if (!at::are_expandable(a.sizes(), b.sizes()) || !clear_of_each_other(a, at::zeros({}))) return;
    define_computed("at::where(" + name(x) + " > 0, " + both + ")",
                    [=](const Tensors& t) { return at::where(t[x] > 0, t[x], t[y]); });
  }

  // x xᵀ of the last two dimensions.
  void product(size_t x) {
    const at::Tensor& tensor = at(x);
    if (tensor.dim() < 2 || !tensor.is_floating_point()) return;
    if (std::pow(magnitude(tensor), 2) * static_cast<double>(tensor.size(-1)) > largest) return;
    define_computed("at::matmul(" + name(x) + ", " + name(x) + ".transpose(-1, -2))",
                    [=](const Tensors& t) { return at::matmul(t[x], t[x].transpose(-1, -2)); });
  }

  void conversion(size_t x) {
    constexpr std::pair<at::ScalarType, const char*> types[] = {{at::kFloat, "at::kFloat"},
                                                                {at::kDouble, "at::kDouble"},
                                                                {at::kLong, "at::kLong"},
                                                                {at::kInt, "at::kInt"}};
    auto [type, type_name] = types[below(4)];
    if (at::isIntegralType(type, true) && !clear_of_whole_numbers(at(x))) return;
    define_computed(name(x) + ".to(" + type_name + ")",
                    [x, type = type](const Tensors& t) { return t[x].to(type); });
  }

  std::mt19937_64 random_;
  at::ScalarType floating_;
  Tensors tensors_;
  RandomProgram program_;
};

}  // namespace

std::string RandomProgram::text() const {
  std::string all;
  for (size_t i = 0; i < inputs.size(); ++i)
    all += "auto " + name(i) + " = input of " + list(inputs[i].sizes()) + ", " +
           c10::toString(inputs[i].scalar_type()) + ";\n";
  for (const Line& line : lines) all += line.text + "\n";
  return all;
}

RandomProgram make_random_program(uint64_t seed, int lines) { return Writer(seed, lines).program(); }

}  // namespace ivme::test
