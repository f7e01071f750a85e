#include "xla/lower/op.h"

#include <unordered_map>

#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Table = std::unordered_map<std::string_view, Op>;

Table make_table() {
  Table table;
  for (Rows (*rows)() : {arithmetic_rows, comparison_rows, unary_rows, activation_rows, reduction_rows,
                         scan_rows, softmax_rows, loss_rows, matrix_rows, convolution_rows,
                         normalization_rows, pooling_rows, resampling_rows, indexing_rows, shape_rows,
                         strided_rows, creation_rows, random_rows, recurrent_rows}) {
    for (const Op& op : rows()) table.emplace(op.name, op);
  }
  return table;
}

const Table& table() {
  static const Table& all = *new Table(make_table());  // recorded nodes may outlive static objects
  return all;
}

}  // namespace

const Op* find_op(std::string_view name) {
  auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string_view> op_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, op] : table()) names.push_back(name);
  return names;
}

}  // namespace ivme::xla
