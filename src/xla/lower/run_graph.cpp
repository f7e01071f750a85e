#include "xla/lower/run_graph.h"

#include "ivme/error.h"
#include "xla/compile/client.h"
#include "xla/compile/plugin.h"
#include "xla/lower/op.h"
#include "xla/lower/program.h"
#include "xla/run/buffer.h"
#include "xla/run/execute.h"

namespace ivme::xla {
namespace {

const std::shared_ptr<Client>& client() {
  static const auto one = Client::create(find_plugin(), {.cache = {.enabled = false}});
  return one;
}

Argument argument_of(Argument::Kind kind, int64_t integer = 0) {
  Argument argument;
  argument.kind = kind;
  argument.integer = integer;
  return argument;
}

Value cast(Value value, Dtype dtype) {
  if (value.shape().dtype == dtype) return value;
  return apply("ivme::cast", {std::move(value)}, {operand(0), of_dtype(dtype)});
}

}  // namespace

Value make_tensor(Dtype dtype, const Dims& dims, const std::vector<double>& values) {
  Shape shape{Dtype::f64, dims};
  return cast({make_leaf(upload(client(), values.data(), shape), shape)}, dtype);
}

Value apply(std::string_view op, std::vector<Value> operands, std::vector<Argument> arguments, int output) {
  const Op* row = find_op(op);
  if (row == nullptr) throw Error("The test asks for " + std::string(op) + ", which has no row.");
  return {make_operation(*row, std::move(operands), std::move(arguments)), output};
}

Argument operand(int64_t index, bool weak) {
  Argument argument = argument_of(Argument::Kind::operand, index);
  argument.weak = weak;
  return argument;
}
Argument whole(int64_t value) { return argument_of(Argument::Kind::integer, value); }
Argument of_dtype(Dtype dtype) { return argument_of(Argument::Kind::dtype, static_cast<int64_t>(dtype)); }
Argument real(double value) {
  Argument argument = argument_of(Argument::Kind::real);
  argument.real = value;
  return argument;
}
Argument list(Dims values) {
  Argument argument = argument_of(Argument::Kind::integers);
  argument.integers = std::move(values);
  return argument;
}
Argument word(std::string text) {
  Argument argument = argument_of(Argument::Kind::text);
  argument.text = std::move(text);
  return argument;
}

std::vector<std::vector<double>> run(const std::vector<Value>& roots) {
  std::vector<Value> doubles;
  for (const Value& root : roots) doubles.push_back(cast(root, Dtype::f64));
  const Graph graph = make_graph(doubles, {});
  std::vector<std::shared_ptr<Buffer>> arguments;
  for (const auto& leaf : graph.leaves) arguments.push_back(leaf->buffer);
  for (const PackedNumbers& pack : pack_numbers(graph)) {
    arguments.push_back(upload(client(), pack.bytes.data(), pack.shape));
  }
  std::vector<std::vector<double>> results;
  for (const auto& buffer : execute(*client()->compile(lower(graph)), arguments)) {
    results.emplace_back(static_cast<size_t>(buffer->shape().count()));
    buffer->download(results.back().data(), buffer->bytes());
  }
  return results;
}

}  // namespace ivme::xla
