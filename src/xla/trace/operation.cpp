#include "xla/trace/operation.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace ivme::xla {
namespace {

const std::unordered_map<std::string, const char*>& data_dependent() {
  static const std::unordered_map<std::string, const char*> table = {
      {"aten::nonzero", "Use where(condition, a, b), or a product with the condition"},
      {"aten::masked_select", "Use where(mask, x, 0), or a sum weighted with the mask"},
      {"aten::_unique2", "Count into a fixed number of classes with one_hot or scatter_add"},
      {"aten::unique_dim", "Count into a fixed number of classes with one_hot or scatter_add"},
      {"aten::unique_consecutive", "Count into a fixed number of classes with one_hot or scatter_add"},
      {"aten::bincount", "Use zeros(n).scatter_add(0, x, ones), with n known"},
      {"aten::repeat_interleave.Tensor",
       "Use a whole number of repeats, or index_select with an index of fixed length"},
  };
  return table;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool same_inputs(const c10::FunctionSchema& candidate, const c10::FunctionSchema& schema, size_t inputs) {
  if (candidate.arguments().size() != inputs) return false;
  for (size_t i = 0; i < inputs; ++i) {
    const auto& argument = candidate.arguments()[i];
    if (writes(argument) || *argument.type() != *schema.arguments()[i].type()) return false;
  }
  return true;
}

// The functional operator of an in-place or out= one: of the same base name, and taking the same inputs.
const Op* functional_op(const c10::OperatorHandle& handle, const std::string& base, size_t inputs) {
  const auto& schema = handle.schema();
  const std::string& overload = handle.operator_name().overload_name;
  if (const Op* op = find_op(overload.empty() ? base : base + "." + overload)) return op;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name != base) continue;
    auto candidate = dispatcher.findSchema(name);
    if (!candidate || !same_inputs(candidate->schema(), schema, inputs)) continue;
    if (const Op* op = find_op(c10::toString(name))) return op;
  }
  return nullptr;
}

Operation::Role role_of(const c10::Argument& argument) {
  std::string type = argument.real_type()->str();
  if (type == "Scalar" || type == "Scalar?" || type == "number") return Operation::Role::scalar;
  if (type.starts_with("ScalarType")) return Operation::Role::dtype;
  for (const char* ignored : {"Layout", "MemoryFormat", "Device", "Generator"})
    if (type.starts_with(ignored)) return Operation::Role::ignored;
  return argument.type()->kind() == c10::TypeKind::NumberType ? Operation::Role::scalar
                                                              : Operation::Role::plain;
}

std::unique_ptr<Operation> look_up(const c10::OperatorHandle& handle) {
  auto found = std::make_unique<Operation>();
  const auto& schema = handle.schema();
  found->name = c10::toString(handle.operator_name());
  found->arguments = found->inputs = schema.arguments().size();
  found->returns = schema.returns().size();
  for (size_t i = 0; i < found->arguments; ++i) {
    if (writes(schema.arguments()[i])) found->written.push_back(i);
    if (schema.arguments()[i].name() == "output_mask") found->output_mask = i;
  }
  std::string base = handle.operator_name().name;
  if (found->written.empty()) {
    found->op = find_op(found->name);
  } else if (base.back() == '_') {
    found->kind = Operation::Kind::in_place;
    base.pop_back();
    found->op = functional_op(handle, base, found->inputs);
  } else {
    found->kind = Operation::Kind::out;
    found->inputs -= found->written.size();
    found->op = functional_op(handle, base, found->inputs);
  }
  for (size_t i = 0; i < found->inputs; ++i) found->roles.push_back(role_of(schema.arguments()[i]));
  if (auto refused = data_dependent().find(found->name); refused != data_dependent().end())
    found->instead = refused->second;
  return found;
}

}  // namespace

const Operation& operation_of(const c10::OperatorHandle& handle) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Operation>>;
  std::lock_guard lock(mutex);
  auto& operation = (*known)[&handle.schema()];
  if (!operation) operation = look_up(handle);
  return *operation;
}

}  // namespace ivme::xla
