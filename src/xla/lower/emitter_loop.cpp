#include "ivme/error.h"
#include "xla/lower/emitter.h"

namespace ivme::xla {
namespace {

struct Listed {
  std::string names, types;
};
Listed listed(const std::vector<Hlo>& values) {
  Listed all;
  for (const Hlo& value : values) {
    all.names += (all.names.empty() ? "" : ", ") + value.name;
    all.types += (all.types.empty() ? "" : ", ") + to_string(value.shape);
  }
  return all;
}

std::string joined(const Dims& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

std::vector<Hlo> with_starts(std::vector<Hlo> operands, const std::vector<Hlo>& starts) {
  operands.insert(operands.end(), starts.begin(), starts.end());
  return operands;
}

void require_same_shapes(const std::vector<Hlo>& carried, const std::vector<Hlo>& made) {
  bool same = carried.size() == made.size();
  for (size_t i = 0; same && i < made.size(); ++i) same = carried[i].shape == made[i].shape;
  if (same) return;
  throw Error("A loop of a program for XLA carries (" + listed(carried).types + "), and a pass makes (" +
              listed(made).types + ") of it. The row that writes the loop must make them equal.");
}

}  // namespace

Hlo Emitter::dynamic_slice(const Hlo& x, const std::vector<Hlo>& starts, const Dims& sizes) {
  Shape shape{x.shape.dtype, sizes};
  Listed operands = listed(with_starts({x}, starts));
  return write("stablehlo.dynamic_slice " + operands.names + ", sizes = " + "[" + joined(sizes) + "]" +
                   " : (" + operands.types + ") -> " + to_string(shape),
               shape);
}

Hlo Emitter::dynamic_update_slice(const Hlo& x, const Hlo& update, const std::vector<Hlo>& starts) {
  if (x.shape == update.shape) return update;
  Listed operands = listed(with_starts({x, update}, starts));
  return write("stablehlo.dynamic_update_slice " + operands.names + " : (" + operands.types + ") -> " +
                   to_string(x.shape),
               x.shape);
}

Hlo Emitter::update_slice(const Hlo& x, const Hlo& update, const Dims& starts) {
  std::vector<Hlo> positions;
  for (int64_t start : starts) positions.push_back(constant(start, {Dtype::i32, {}}));
  return dynamic_update_slice(x, update, positions);
}

std::vector<Hlo> Emitter::repeat(int64_t times, const std::vector<Hlo>& start, const Pass& body) {
  const Shape counter{Dtype::i32, {}};
  std::vector<Hlo> before{constant(0, counter)};
  before.insert(before.end(), start.begin(), start.end());
  const std::string name = "%" + std::to_string(next_++);
  std::vector<Hlo> inside, after;
  std::string bindings;
  for (const Hlo& value : before) {
    inside.push_back(name_value("%" + std::to_string(next_++), value.shape));
    after.push_back(name_value(name + "#" + std::to_string(after.size()), value.shape));
    bindings += (bindings.empty() ? "" : ", ") + inside.back().name + " = " + value.name;
  }
  text_ += "  " + name + ":" + std::to_string(before.size()) + " = stablehlo.while(" + bindings +
           ") : " + listed(before).types + "\n  cond {\n";
  const auto outside = constants_;  // what a region writes cannot be seen from outside
  Hlo more = compare("LT", inside[0], constant(times, counter));
  text_ += "  stablehlo.return " + more.name + " : " + to_string(more.shape) + "\n  } do {\n";
  constants_ = outside;
  std::vector<Hlo> carried(inside.begin() + 1, inside.end());
  std::vector<Hlo> made = body(inside[0], carried);
  require_same_shapes(carried, made);
  made.insert(made.begin(), binary("add", inside[0], constant(1, counter)));
  text_ += "  stablehlo.return " + listed(made).names + " : " + listed(made).types + "\n  }\n";
  constants_ = outside;
  after.erase(after.begin());
  return after;
}

}  // namespace ivme::xla
