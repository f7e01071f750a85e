// LSTM, GRU and RNN on xla: each layer and direction is one node, a loop whose text does not depend on the
// length of the sequence (lower/recurrent.cpp). libtorch would record every position.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ivme/error.h"
#include "xla/trace/arguments.h"
#include "xla/trace/record.h"
#include "xla/trace/recurrent_formula.h"
#include "xla/trace/storage.h"

namespace ivme::xla {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Maybe = std::optional<Tensor>;

const char* name_of(RecurrentKind kind) {
  constexpr const char* names[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  return names[static_cast<size_t>(kind)];
}

Maybe if_defined(const Tensor& tensor) { return tensor.defined() ? Maybe(tensor) : std::nullopt; }

// Tensors (undefined: None), then flags, as the row wants them.
variable_list record_layer(RecurrentKind kind, const char* suffix, const variable_list& tensors,
                           std::initializer_list<bool> flags) {
  std::vector<Value> operands;
  std::vector<Argument> arguments;
  ContextPtr context;
  for (const Tensor& tensor : tensors) {
    Argument& argument = arguments.emplace_back();
    if (!tensor.defined()) continue;
    argument = operand(static_cast<int64_t>(operands.size()));
    operands.push_back(read(tensor));
    if (!context) context = storage_of(tensor).context();
  }
  for (bool flag : flags) arguments.push_back(boolean(flag));
  std::shared_ptr<Node> node = make_operation(row(std::string("ivme::") + name_of(kind) + suffix),
                                              std::move(operands), std::move(arguments));
  variable_list results;
  for (int i = 0; i < static_cast<int>(node->shapes.size()); ++i)
    results.push_back(make_tensor({node, i}, context));
  return results;
}

class RecurrentLayer : public torch::autograd::Function<RecurrentLayer> {
 public:
  // Gives h of all positions, the last h, and of an LSTM the last c.
  static variable_list forward(AutogradContext* context, RecurrentKind kind, bool reverse, bool keep,
                               const Tensor& projection, const Tensor& h, const Maybe& c,
                               const Tensor& weight, const Maybe& bias, const Maybe& shrink,
                               const Maybe& valid) {
    const Tensor none;
    variable_list inputs{
        projection,          h, c.value_or(none), weight, bias.value_or(none), shrink.value_or(none),
        valid.value_or(none)};
    variable_list results = record_layer(kind, "_layer", inputs, {reverse, keep});
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    inputs.insert(inputs.end(), {results[0], results[3], results[4]});
    context->save_for_backward(std::move(inputs));
    results.resize(c ? 3 : 2);
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto kind = static_cast<RecurrentKind>(context->saved_data["kind"].toInt());
    const bool reverse = context->saved_data["reverse"].toBool();
    variable_list saved = context->get_saved_variables();
    const Tensor none;
    gradients.resize(3);
    variable_list found;
    if (at::GradMode::is_enabled()) {
      found = differentiable_gradients(kind, reverse, saved, gradients);
    } else {
      variable_list inputs = gradients;
      inputs.insert(inputs.end(),
                    {saved[1], saved[3], saved[4], saved[5], saved[6], saved[7],
                     kind == RecurrentKind::lstm || kind == RecurrentKind::gru ? saved[8] : none,
                     kind == RecurrentKind::lstm ? saved[9] : none});
      found = record_layer(kind, "_layer_backward", inputs, {reverse});
    }
    variable_list result(3);  // of kind, reverse, keep
    for (size_t i = 0; i < 6; ++i) result.push_back(saved[i].defined() ? found[i] : none);
    result.emplace_back();  // of valid
    return result;
  }
};

// The arguments of lstm.input and its like, in one form.
struct Call {
  RecurrentKind kind;
  Tensor input;  // [T, B, features]
  Tensor h, c;   // [layers · directions, B, ·]; c of an LSTM only
  std::vector<Tensor> parameters;
  bool has_biases;
  int64_t layers;
  double dropout;  // 0 in evaluation
  bool bidirectional;
  Tensor valid = {};  // [T, B]; undefined: all
};

struct Results {
  Tensor output, h, c;
};

// Under autocast everything is in the lower precision, as with cuDNN's layers.
Call lowered(Call call) {
  if (!at::autocast::is_autocast_enabled(at::kXLA)) return call;
  auto lower = [type = at::autocast::get_autocast_dtype(at::kXLA)](Tensor& tensor) {
    if (tensor.defined()) tensor = at::autocast::cached_cast(type, tensor, at::kXLA);
  };
  lower(call.input), lower(call.h), lower(call.c);
  for (Tensor& parameter : call.parameters) lower(parameter);
  return call;
}

[[noreturn]] void refuse(const Call& call, const std::string& what, const std::string& remedy) {
  throw Error(std::string(name_of(call.kind)) + " was called on xla with " + what + ". " + remedy + ".");
}

void check(const Call& call) {
  if (call.input.dim() != 3 || call.input.size(0) == 0)
    refuse(call, "an input of sizes " + c10::str(call.input.sizes()),
           "It must have three dimensions, those of time, batch and features, and at least one position");
  const int64_t states = call.layers * (call.bidirectional ? 2 : 1);
  const bool has_c = call.kind == RecurrentKind::lstm;
  auto check_state = [&](const Tensor& state) {
    if (state.dim() != 3 || state.size(0) != states || state.size(1) != call.input.size(1))
      refuse(call, "an initial state of sizes " + c10::str(state.sizes()),
             "Its first two must be " + std::to_string(states) + " (layers times directions) and " +
                 std::to_string(call.input.size(1)) + " (the batch)");
  };
  check_state(call.h);
  if (has_c) check_state(call.c);
  const int64_t least = states * (call.has_biases ? 4 : 2);
  const auto given = static_cast<int64_t>(call.parameters.size());
  if (given != least && !(has_c && given == least + states))
    refuse(call, std::to_string(given) + " weights and biases",
           std::to_string(least) + " are needed for " + std::to_string(states) + " layers and directions");
  auto check_kind = [&](const Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_xla() && tensor.scalar_type() == call.input.scalar_type())) return;
    refuse(call,
           "an input of type " + std::string(c10::toString(call.input.scalar_type())) +
               " and a tensor of type " + c10::toString(tensor.scalar_type()) + " on " +
               tensor.device().str(),
           "Move all of them with .to(accelerator.device()), and give them one type");
  };
  check_kind(call.h);
  check_kind(call.c);
  for (const Tensor& parameter : call.parameters) check_kind(parameter);
}

struct Parameters {
  Tensor input_weight, weight, input_bias, bias, shrink;
};
Parameters parameters_of(const Call& call, int64_t state) {
  const auto each = static_cast<int64_t>(call.parameters.size()) / call.h.size(0);
  auto at = [&](int64_t i) { return call.parameters[static_cast<size_t>(state * each + i)]; };
  Parameters own{at(0), at(1), {}, {}, {}};
  if (call.has_biases) own.input_bias = at(2), own.bias = at(3);
  if (each % 2 == 1) own.shrink = at(each - 1);
  return own;
}

// One layer in one direction.
variable_list apply(const Call& call, const Tensor& input, int64_t state, bool reverse) {
  const Parameters own = parameters_of(call, state);
  // A GRU's reset gate scales a sum with its hidden bias, so that has to stay in the loop.
  const bool bias_inside = call.kind == RecurrentKind::gru;
  Tensor bias = own.input_bias;
  if (bias.defined() && !bias_inside) bias = bias + own.bias;
  const Tensor projection = at::linear(input, own.input_weight, bias), h = call.h.select(0, state);
  const Maybe c = call.c.defined() ? Maybe(call.c.select(0, state)) : std::nullopt;
  bool keep = false;
  for (const Tensor& one : {projection, h, c.value_or(h), own.weight, own.bias, own.shrink})
    keep = keep || (one.defined() && one.requires_grad());
  return RecurrentLayer::apply(call.kind, reverse, keep && at::GradMode::is_enabled(), projection, h, c,
                               own.weight, bias_inside ? if_defined(own.bias) : std::nullopt,
                               if_defined(own.shrink), if_defined(call.valid));
}

Results run(Call call) {
  call = lowered(std::move(call));
  check(call);
  std::vector<Tensor> h, c;
  Tensor input = call.input;
  for (int64_t layer = 0, state = 0; layer < call.layers; ++layer) {
    if (layer > 0 && call.dropout != 0) input = at::dropout(input, call.dropout, /*train=*/true);
    std::vector<Tensor> outputs;
    for (bool reverse : {false, true}) {
      if (reverse && !call.bidirectional) break;
      variable_list results = apply(call, input, state++, reverse);
      outputs.push_back(results[0]);
      h.push_back(results[1]);
      if (call.c.defined()) c.push_back(results[2]);
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 2);
  }
  return {input, at::stack(h), c.empty() ? Tensor() : at::stack(c)};
}

Results run_batch(Call call, bool batch_first) {
  if (batch_first && call.input.dim() == 3) call.input = call.input.transpose(0, 1);
  Results results = run(std::move(call));
  if (batch_first) results.output = results.output.transpose(0, 1);
  return results;
}

// Packed sequences, longest first: they are padded, and their places marked. Where these are is an input of
// the program, so only the sizes of the batch make another one.
Results run_packed(Call call, const Tensor& batch_sizes) {
  if (!batch_sizes.is_cpu() || batch_sizes.scalar_type() != at::kLong || batch_sizes.dim() != 1 ||
      batch_sizes.numel() == 0)
    refuse(call, "batch sizes that are no vector of whole numbers on the CPU",
           "Pack the sequences with pack_padded_sequence");
  const int64_t positions = batch_sizes.numel(), batch = batch_sizes[0].item<int64_t>();
  const Tensor valid = at::arange(batch).unsqueeze(0) < batch_sizes.unsqueeze(1);
  const Tensor packed_place = valid.flatten().cumsum(0).sub_(1).clamp_min_(0);
  const Tensor padded_place = valid.flatten().nonzero().squeeze(1);
  if (call.input.dim() != 2 || padded_place.size(0) != call.input.size(0))
    refuse(call, "packed data of sizes " + c10::str(call.input.sizes()),
           "They must have two dimensions, the first as long as the sum of the batch sizes");
  const at::Device device = call.input.device();
  call.valid = valid.to(device);
  call.input =
      at::index_select(call.input, 0, packed_place.to(device)).view({positions, batch, call.input.size(1)});
  Results results = run(std::move(call));
  results.output = at::index_select(results.output.flatten(0, 1), 0, padded_place.to(device));
  return results;
}

// --- the operators
// -------------------------------------------------------------------------------------------

Call lstm_call(const Tensor& input, at::TensorList state, at::TensorList parameters, bool has_biases,
               int64_t layers, double dropout, bool bidirectional) {
  if (state.size() != 2)
    throw Error("lstm was called on xla with " + std::to_string(state.size()) +
                " initial states. Give it two: h and c.");
  return {RecurrentKind::lstm, input,  state[0], state[1],     parameters.vec(),
          has_biases,          layers, dropout,  bidirectional};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList state, at::TensorList parameters,
                                        bool has_biases, int64_t layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  auto [output, h, c] =
      run_batch(lstm_call(input, state, parameters, has_biases, layers, train ? dropout : 0, bidirectional),
                batch_first);
  return {output, h, c};
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes,
                                               at::TensorList state, at::TensorList parameters,
                                               bool has_biases, int64_t layers, double dropout, bool train,
                                               bool bidirectional) {
  auto [output, h, c] =
      run_packed(lstm_call(data, state, parameters, has_biases, layers, train ? dropout : 0, bidirectional),
                 batch_sizes);
  return {output, h, c};
}

template <RecurrentKind kind>
Call other_call(const Tensor& input, const Tensor& h, at::TensorList parameters, bool has_biases,
                int64_t layers, double dropout, bool bidirectional) {
  return {kind, input, h, {}, parameters.vec(), has_biases, layers, dropout, bidirectional};
}

template <RecurrentKind kind>
std::tuple<Tensor, Tensor> other(const Tensor& input, const Tensor& h, at::TensorList parameters,
                                 bool has_biases, int64_t layers, double dropout, bool train,
                                 bool bidirectional, bool batch_first) {
  Results results = run_batch(
      other_call<kind>(input, h, parameters, has_biases, layers, train ? dropout : 0, bidirectional),
      batch_first);
  return {results.output, results.h};
}

template <RecurrentKind kind>
std::tuple<Tensor, Tensor> other_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,
                                        at::TensorList parameters, bool has_biases, int64_t layers,
                                        double dropout, bool train, bool bidirectional) {
  Results results = run_packed(
      other_call<kind>(data, h, parameters, has_biases, layers, train ? dropout : 0, bidirectional),
      batch_sizes);
  return {results.output, results.h};
}

void implement(torch::Library& library) {
  library.impl("lstm.input", lstm);
  library.impl("lstm.data", lstm_packed);
  library.impl("gru.input", other<RecurrentKind::gru>);
  library.impl("gru.data", other_packed<RecurrentKind::gru>);
  library.impl("rnn_tanh.input", other<RecurrentKind::rnn_tanh>);
  library.impl("rnn_tanh.data", other_packed<RecurrentKind::rnn_tanh>);
  library.impl("rnn_relu.input", other<RecurrentKind::rnn_relu>);
  library.impl("rnn_relu.data", other_packed<RecurrentKind::rnn_relu>);
}

// Also tensors of inference mode, which know nothing of autograd, come here.
TORCH_LIBRARY_IMPL(aten, AutogradXLA, library) { implement(library); }
TORCH_LIBRARY_IMPL(aten, XLA, library) { implement(library); }

}  // namespace

void register_recurrent() {}

}  // namespace ivme::xla
