#include <algorithm>
#include <unordered_set>

#include "random_writer.h"

namespace ivme::test {
namespace {

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

// Its values can be converted to the other's type, and all machines agree on the outcome.
bool fits(const at::Tensor& from, const at::Tensor& to) {
  if (to.is_floating_point()) return true;
  if (to.scalar_type() == at::kByte && from.numel() && from.to(at::kDouble).min().item<double>() < 0)
    return false;
  return clear_of_whole_numbers(from);
}

}  // namespace

std::pair<int64_t, int64_t> RandomWriter::part_of(int64_t size) {
  int64_t least = size > 0 && !chance(15) ? 1 : 0;
  int64_t start = below(size + 1 - least);
  return {start, least + below(size - start + 1 - least)};
}

void RandomWriter::view(size_t x) {
  const at::Tensor& tensor = at(x);
  int64_t d = dim_of(tensor), e = dim_of(tensor);
  std::string self = name_of(x);
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
      auto [start, length] = part_of(tensor.size(d));
      int64_t step = 1 + below(3), end = start + length;
      return define(self + ".slice(" + arguments({d, start, end, step}) + ")",
                    [=, start = start](const Tensors& t) { return t[x].slice(d, start, end, step); });
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
      auto [start, length] = part_of(tensor.size(d));
      return define(
          self + ".narrow(" + arguments({d, start, length}) + ")",
          [=, start = start, length = length](const Tensors& t) { return t[x].narrow(d, start, length); });
    }
    case 7:
      if (tensor.dim() > 2) return;
      return define(self + ".t()", [=](const Tensors& t) { return t[x].t(); });
    default:
      return reshape(x);
  }
}

void RandomWriter::reshape(size_t x) {
  std::vector<int64_t> sizes;
  int64_t rest = at(x).numel();
  if (rest == 0) return;
  for (int64_t divisor : {2, 3, 4, 5})
    if (rest % divisor == 0 && chance(2)) sizes.push_back(divisor), rest /= divisor;
  sizes.insert(sizes.begin() + below(static_cast<int64_t>(sizes.size()) + 1), -1);
  if (at(x).is_contiguous() && chance(2))
    return define(name_of(x) + ".view(" + list(sizes) + ")",
                  [=](const Tensors& t) { return t[x].view(sizes); });
  define(name_of(x) + ".reshape(" + list(sizes) + ")", [=](const Tensors& t) { return t[x].reshape(sizes); });
}

void RandomWriter::odd_view(size_t x) {
  const at::Tensor& tensor = at(x);
  if (tensor.dim() == 0 || tensor.dim() > 4 || tensor.numel() == 0) return;
  int64_t d = dim_of(tensor);
  switch (below(3)) {
    case 0: {
      int64_t e = dim_of(tensor), offset = below(3) - 1;
      if (d == e) return;
      return define(name_of(x) + ".diagonal(" + arguments({offset, d, e}) + ")",
                    [=](const Tensors& t) { return t[x].diagonal(offset, d, e); });
    }
    case 1: {
      int64_t size = 1 + below(tensor.size(d)), step = 1 + below(2);
      return define(name_of(x) + ".unfold(" + arguments({d, size, step}) + ")",
                    [=](const Tensors& t) { return t[x].unfold(d, size, step); });
    }
    default:
      return as_strided(x);
  }
}

void RandomWriter::as_strided(size_t x) {
  auto storage = static_cast<int64_t>(at(x).storage().nbytes() / at(x).element_size());
  std::vector<int64_t> sizes(static_cast<size_t>(1 + below(3))), strides(sizes.size());
  int64_t offset = below(storage), last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = 1 + below(3), strides[i] = below(5);
    last += (sizes[i] - 1) * strides[i];
  }
  if (last >= storage) return;
  if (at(x).numel() < storage) program_.reaches_beyond_a_view = true;
  define(
      name_of(x) + ".as_strided(" + list(sizes) + ", " + list(strides) + ", " + std::to_string(offset) + ")",
      [=](const Tensors& t) { return t[x].as_strided(sizes, strides, offset); });
}

void RandomWriter::write(size_t x) {
  const at::Tensor& tensor = at(x);
  if (overlaps_itself(tensor)) return;
  bool whole = !tensor.is_floating_point();
  double number = whole ? static_cast<double>(below(4)) : static_cast<double>(below(400)) / 100 + 0.003;
  std::string text = whole ? std::to_string(static_cast<int>(number)) : std::to_string(number);
  switch (below(6)) {
    case 0:
      return add(name_of(x) + ".fill_(" + text + ");", [=](Tensors& t) { t[x].fill_(number); });
    case 1:
      if (whole || magnitude(tensor) * number > largest_magnitude) return;
      return add(name_of(x) + ".mul_(" + text + ");", [=](Tensors& t) { t[x].mul_(number); });
    case 2:
      return assign_rows(x);
    default:
      return write_from_another(x);
  }
}

void RandomWriter::write_from_another(size_t x) {
  const at::Tensor& to = at(x);
  auto found = pick_where([&](const at::Tensor& one) {
    return at::is_expandable_to(one.sizes(), to.sizes()) && !one.is_alias_of(to);
  });
  if (!found) return;
  size_t y = *found;
  const at::Tensor& from = at(y);
  double a = magnitude(to), b = magnitude(from);
  bool byte = to.scalar_type() == at::kByte;  // small, and without a sign
  bool computes = !byte && at::canCast(at::result_type(to, from), to.scalar_type());
  switch (below(3)) {
    case 0:
      if (a + 2 * b > largest_magnitude || !computes || to.scalar_type() == at::kBool) return;
      return add(name_of(x) + ".add_(" + name_of(y) + ", 2);", [=](Tensors& t) { t[x].add_(t[y], 2); });
    case 1:
      if (a * b > largest_magnitude || !computes) return;
      return add(name_of(x) + ".mul_(" + name_of(y) + ");", [=](Tensors& t) { t[x].mul_(t[y]); });
    default:
      if (!fits(from, to)) return;
      return add(name_of(x) + ".copy_(" + name_of(y) + ");", [=](Tensors& t) { t[x].copy_(t[y]); });
  }
}

// As x[{start, end, step}] = y and x[i] = y in Python.
void RandomWriter::assign_rows(size_t x) {
  if (at(x).dim() == 0 || at(x).size(0) == 0) return;
  auto [start, length] = part_of(at(x).size(0));
  int64_t step = 1 + below(2), i = start, end = start + length;
  bool one = chance(2) && length > 0;
  at::Tensor rows = one ? at(x).select(0, i) : at(x).slice(0, start, end, step);
  auto found = pick_where([&](const at::Tensor& y) {
    return at::is_expandable_to(y.sizes(), rows.sizes()) && !y.is_alias_of(rows) && fits(y, rows);
  });
  if (!found) return;
  size_t y = *found;
  std::string which = one ? std::to_string(i) : "Slice(" + arguments({i, end, step}) + ")";
  add(name_of(x) + ".index_put_({" + which + "}, " + name_of(y) + ");", [=](Tensors& t) {
    at::indexing::TensorIndex index = i;
    if (!one) index = at::indexing::Slice(i, end, step);
    t[x].index_put_({index}, t[y]);
  });
}

}  // namespace ivme::test
