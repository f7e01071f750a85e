#include "xla/trace/record.h"

#include <ATen/native/CPUFallback.h>

#include "ivme/error.h"
#include "process/environment.h"
#include "xla/replay/capture.h"
#include "xla/step.h"
#include "xla/trace/host_number.h"
#include "xla/trace/operation.h"
#include "xla/trace/origin.h"
#include "xla/trace/storage.h"

namespace ivme::xla {
namespace {

// Turns the arguments of one call into operands and arguments of a node.
class Recorder {
 public:
  Recorder(const Operation& operation, c10::ArrayRef<c10::IValue> values) : operation_(operation) {
    arguments_.resize(operation.inputs);
    for (size_t i = 0; i < operation.inputs; ++i) add(i, values[i]);
    for (const Number& number : numbers_) add_number(number);
  }

  std::shared_ptr<Node> node() {
    return make_operation(*operation_.op, std::move(operands_), std::move(arguments_));
  }
  const ContextPtr& context() const { return context_; }

 private:
  void add(size_t i, const c10::IValue& value) {
    Argument& argument = arguments_[i];
    if (operation_.roles[i] == Operation::Role::ignored || value.isNone() || value.isDevice() ||
        value.isGenerator())
      return;
    if (operation_.roles[i] == Operation::Role::dtype) {
      set(argument, Argument::Kind::dtype,
          static_cast<int64_t>(dtype_of(static_cast<at::ScalarType>(value.toInt()))));
    } else if (operation_.roles[i] == Operation::Role::scalar && (operation_.op->run_time_scalars >> i & 1)) {
      numbers_.push_back({i, value.toScalar(), source_of(value)});
    } else if (value.isTensor()) {
      if (value.toTensor().defined()) add_tensor(argument, value.toTensor());
    } else if (value.isTensorList()) {
      begin_list(argument);
      for (const at::Tensor& tensor : value.toTensorVector()) add_to_list(argument, tensor);
    } else if (value.isOptionalTensorList()) {
      begin_list(argument);
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
        add_to_list(argument, tensor.value_or(at::Tensor()));
    } else {
      add_plain(argument, value);
    }
  }

  void add_plain(Argument& argument, const c10::IValue& value) {
    if (value.isBool()) {
      set(argument, Argument::Kind::boolean, value.toBool());
    } else if (value.isInt()) {
      set(argument, Argument::Kind::integer, value.toInt());
    } else if (value.isDouble()) {
      argument.kind = Argument::Kind::real;
      argument.real = value.toDouble();
    } else if (value.isString()) {
      argument.kind = Argument::Kind::text;
      argument.text = value.toStringRef();
    } else if (value.isIntList()) {
      argument.kind = Argument::Kind::integers;
      argument.integers = value.toIntVector();
    } else if (value.isDoubleList()) {
      argument.kind = Argument::Kind::reals;
      argument.reals = value.toDoubleVector();
    } else if (value.isBoolList()) {
      argument.kind = Argument::Kind::integers;
      for (bool one : value.toBoolList()) argument.integers.push_back(one);
    } else {
      throw Error(operation_.name + " was called on xla with an argument of type " + value.tagKind() +
                  ", which cannot be recorded. Move its tensors to the CPU for this operation.");
    }
  }

  static void set(Argument& argument, Argument::Kind kind, int64_t value) {
    argument.kind = kind;
    argument.integer = value;
  }

  void add_tensor(Argument& argument, const at::Tensor& tensor) {
    argument.weak = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (tensor.device().type() == at::kXLA) {
      push(argument, read(tensor));
      widen(tensor.scalar_type(), true);
      if (!context_) context_ = storage_of(tensor).context();
    } else if (tensor.device().is_cpu() && tensor.dim() == 0) {
      if (argument.weak)
        numbers_.push_back(
            {static_cast<size_t>(&argument - arguments_.data()), tensor.item(), source_of(tensor)});
      else
        push(argument, number_of(tensor.item(), dtype_of(tensor.scalar_type()), source_of(tensor)));
    } else {
      throw Error(operation_.name + " was called with a tensor of shape " + c10::str(tensor.sizes()) +
                  " on " + tensor.device().str() +
                  " beside tensors on xla. Move it with .to(accelerator.device()).");
    }
  }

  void begin_list(Argument& argument) {
    set(argument, Argument::Kind::operands, static_cast<int64_t>(operands_.size()));
  }

  void add_to_list(Argument& argument, const at::Tensor& tensor) {
    argument.integers.push_back(tensor.defined());
    if (!tensor.defined()) return;
    if (operation_.name.starts_with("aten::index") &&
        (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte))
      throw Error(operation_.name +
                  " was called on xla with a boolean mask. Its result has as many elements as the mask "
                  "has ones, which no compiled program can know. Use where(mask, a, b), or a sum weighted "
                  "with the mask.");
    Argument one;
    add_tensor(one, tensor);
  }

  void push(Argument& argument, Value value) {
    set(argument, Argument::Kind::operand, static_cast<int64_t>(operands_.size()));
    operands_.push_back(std::move(value));
  }

  // A number takes the precision of the tensors that it meets, so that 0.1 is rounded as PyTorch rounds it.
  void widen(at::ScalarType type, bool has_dims) {
    if (!has_dims) return;
    double_ = double_ || type == at::kDouble;
    floating_ = floating_ || at::isFloatingType(type);
  }

  struct Number {
    size_t argument;
    at::Scalar value;
    std::shared_ptr<const HostNumber> source;
  };

  void add_number(const Number& number) {
    Dtype dtype = number.value.isFloatingPoint() || floating_ ? (double_ ? Dtype::f64 : Dtype::f32)
                  : number.value.isBoolean()                  ? Dtype::boolean
                                                              : Dtype::i64;
    push(arguments_[number.argument], number_of(number.value, dtype, number.source));
    arguments_[number.argument].weak = true;
  }

  static Value number_of(const at::Scalar& number, Dtype dtype, std::shared_ptr<const HostNumber> source) {
    if (Capture* capture = Capture::current(); capture && source) capture->note_source(source.get());
    if (is_floating(dtype))
      return {make_number(dtype == Dtype::f64 ? dtype : Dtype::f32, number.to<double>(), std::move(source))};
    return {make_number(Dtype::i64, number.to<int64_t>(), std::move(source))};
  }

  const Operation& operation_;
  std::vector<Value> operands_;
  std::vector<Argument> arguments_;
  std::vector<Number> numbers_;
  bool double_ = false, floating_ = false;
  ContextPtr context_;
};

// IVME_XLA_CPU_FALLBACK=1: what cannot be recorded is computed on the CPU: a cut, a download and an upload.
bool falls_back() {
  static const bool wanted = read_environment("IVME_XLA_CPU_FALLBACK") == "1";
  return wanted;
}

void refuse_unknown(const Operation& operation) {
  if (operation.instead)
    throw Error(operation.name +
                " was called on xla. The shape of its result depends on data, which no compiled program "
                "can know. " +
                operation.instead + ", or move the tensor to the CPU.");
  if (!operation.op)
    throw Error(operation.name +
                " was called on xla, which cannot do it yet. Move its tensors to the CPU for this "
                "operation, write it with others, or set IVME_XLA_CPU_FALLBACK=1, which is slow.");
}

void push_results(const Operation& operation, const c10::FunctionSchema& schema,
                  const std::shared_ptr<Node>& node, const ContextPtr& context, torch::jit::Stack& stack) {
  int outputs = static_cast<int>(node->shapes.size());
  if (operation.returns == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType) {
    std::vector<at::Tensor> list;
    for (int i = 0; i < outputs; ++i) list.push_back(make_tensor({node, i}, context));
    stack.emplace_back(std::move(list));
    return;
  }
  const std::vector<int64_t>* mask =
      operation.output_mask ? &node->arguments[*operation.output_mask].integers : nullptr;
  for (int i = 0; i < static_cast<int>(operation.returns); ++i) {
    bool wanted = i < outputs && (!mask || (*mask)[static_cast<size_t>(i)] != 0);
    stack.emplace_back(wanted ? make_tensor({node, i}, context) : at::Tensor());
  }
}

bool wants_line(c10::ArrayRef<c10::IValue> values) {
  if (!WantOfLines::any()) return false;
  for (const c10::IValue& value : values) {
    if (!value.isTensor()) continue;
    if (const auto wanted = wants_lines(value.toTensor())) return *wanted;
  }
  return true;
}

void record_operation(const c10::OperatorHandle& handle, const Operation& operation,
                      torch::jit::Stack* stack) {
  if ((operation.instead || !operation.op) && falls_back()) {
    note_fallback(operation.name);
    return at::native::cpu_fallback(handle, stack);
  }
  refuse_unknown(operation);
  auto values = torch::jit::last(*stack, operation.arguments);
  Recorder recorder(operation, values);
  auto node = recorder.node();
  if (operation.kind == Operation::Kind::functional) {
    ContextPtr context = recorder.context();
    torch::jit::drop(*stack, operation.arguments);
    push_results(operation, handle.schema(), node, context, *stack);
    return;
  }
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < operation.written.size(); ++i) {
    at::Tensor tensor = values[operation.written[i]].toTensor();
    Value value{node, static_cast<int>(i)};
    bool resized =
        operation.kind == Operation::Kind::out && tensor.sizes() != at::IntArrayRef(value.shape().dims);
    (resized ? replace : write)(tensor, std::move(value), recorder.context());
    written.push_back(std::move(tensor));
  }
  torch::jit::drop(*stack, operation.arguments);
  for (size_t i = 0; i < operation.returns; ++i) stack->emplace_back(std::move(written[i]));
}

}  // namespace

void record(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Operation& operation = operation_of(handle);
  const Origin here(wants_line(torch::jit::last(*stack, operation.arguments)));
  with_line([&] { record_operation(handle, operation, stack); });
}

}  // namespace ivme::xla
