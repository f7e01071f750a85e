// LSTM, GRU and RNN on xla against the CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "ivme/ivme.h"
#include "message_of.h"
#include "xla/compile/temporary_folder.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace rnn = torch::nn::utils::rnn;
using at::Tensor;
using test::message_of;
using testing::HasSubstr;

enum class Kind { lstm, gru, rnn_tanh, rnn_relu };
constexpr Kind kinds[] = {Kind::lstm, Kind::gru, Kind::rnn_tanh, Kind::rnn_relu};
constexpr int64_t features = 5, hidden = 4;

struct Options {
  Kind kind = Kind::lstm;
  int64_t layers = 1, positions = 6, projections = 0;
  bool bidirectional = false, bias = true, batch_first = false, with_state = true;
  double dropout = 0;
  std::vector<int64_t> lengths = {};  // of packed sequences
};

// A layer of torch.nn, and what it is called with, all of it with gradients.
struct Recurrent : nn::Module {
  explicit Recurrent(const Options& o) : options(o) {
    at::manual_seed(3);
    if (o.kind == Kind::lstm) {
      lstm = register_module(
          "lstm", nn::LSTM(configured(nn::LSTMOptions(features, hidden).proj_size(o.projections))));
    } else if (o.kind == Kind::gru) {
      gru = register_module("gru", nn::GRU(configured(nn::GRUOptions(features, hidden))));
    } else {
      auto plain = configured(nn::RNNOptions(features, hidden));
      if (o.kind == Kind::rnn_relu) plain.nonlinearity(torch::kReLU);
      plain_rnn = register_module("rnn", nn::RNN(plain));
    }
    const int64_t states = o.layers * (o.bidirectional ? 2 : 1);
    auto sizes =
        o.batch_first ? std::vector{batch, o.positions, features} : std::vector{o.positions, batch, features};
    input = register_parameter("input", at::randn(sizes));
    h = register_parameter("h", at::randn({states, batch, o.projections ? o.projections : hidden}));
    c = register_parameter("c", at::randn({states, batch, hidden}));
  }

  template <class LayerOptions>
  LayerOptions configured(LayerOptions layer) const {
    return layer.num_layers(options.layers)
        .bidirectional(options.bidirectional)
        .bias(options.bias)
        .batch_first(options.batch_first)
        .dropout(options.dropout);
  }

  // The output, the last h, and of an LSTM the last c.
  std::vector<Tensor> forward() {
    if (!options.lengths.empty()) return forward_packed();
    using Pair = std::tuple<Tensor, Tensor>;
    if (lstm) {
      auto [y, last] = lstm->forward(input, options.with_state ? std::optional(Pair(h, c)) : std::nullopt);
      return {y, std::get<0>(last), std::get<1>(last)};
    }
    const Tensor state = options.with_state ? h : Tensor();
    auto [y, last] = gru ? gru->forward(input, state) : plain_rnn->forward(input, state);
    return {y, last};
  }

  std::vector<Tensor> forward_packed() {
    auto packed = rnn::pack_padded_sequence(input, at::tensor(options.lengths), options.batch_first, false);
    auto padded = [&](const rnn::PackedSequence& y) {
      return std::get<0>(rnn::pad_packed_sequence(y, options.batch_first));
    };
    if (lstm) {
      auto [y, last] = lstm->forward_with_packed_input(packed, std::tuple(h, c));
      return {padded(y), std::get<0>(last), std::get<1>(last)};
    }
    auto [y, last] =
        gru ? gru->forward_with_packed_input(packed, h) : plain_rnn->forward_with_packed_input(packed, h);
    return {padded(y), last};
  }

  static constexpr int64_t batch = 3;
  Options options;
  nn::LSTM lstm{nullptr};
  nn::GRU gru{nullptr};
  nn::RNN plain_rnn{nullptr};
  Tensor input, h, c;
};

// A number that all of the results have a part in.
Tensor weighted(const std::vector<Tensor>& results) {
  Tensor total;
  for (const Tensor& result : results) {
    Tensor weights =
        at::arange(result.numel(), at::kDouble).cos().view(result.sizes()).to(result.scalar_type());
    Tensor part = (result * weights.to(result.device())).sum();
    total = total.defined() ? total + part : part;
  }
  return total;
}

struct Outcome {
  std::vector<Tensor> results, gradients;
};

Outcome run(const std::string& device, const Options& options, at::ScalarType type, bool train = true) {
  Accelerator accelerator({.device = device});
  auto net = std::make_shared<Recurrent>(options);
  net->to(type);
  net->train(train);
  auto model = accelerator.prepare(net).ptr();
  Outcome outcome{model->forward(), {}};
  weighted(outcome.results).backward();
  for (Tensor& result : outcome.results) result = result.detach();
  for (const Tensor& parameter : model->parameters()) outcome.gradients.push_back(parameter.grad());
  accelerator.end_step();
  return outcome;
}

double difference(const Tensor& traced, const Tensor& eager) {
  if (traced.defined() != eager.defined()) return INFINITY;
  if (!eager.defined()) return 0;
  if (traced.sizes() != eager.sizes() || traced.scalar_type() != eager.scalar_type()) return INFINITY;
  const Tensor expected = eager.to(at::kDouble);
  return (traced.cpu().to(at::kDouble) - expected).norm().item<double>() /
         (expected.norm().item<double>() + 1e-300);
}

void expect_equal(const Outcome& traced, const Outcome& eager, double tolerance) {
  ASSERT_EQ(traced.results.size(), eager.results.size());
  ASSERT_EQ(traced.gradients.size(), eager.gradients.size());
  for (size_t i = 0; i < eager.results.size(); ++i)
    EXPECT_LE(difference(traced.results[i], eager.results[i]), tolerance) << "result " << i;
  for (size_t i = 0; i < eager.gradients.size(); ++i)
    EXPECT_LE(difference(traced.gradients[i], eager.gradients[i]), tolerance) << "gradient " << i;
}

void expect_the_tensors_of_the_cpu(const Options& options, bool train = true) {
  SCOPED_TRACE("kind " + std::to_string(static_cast<int>(options.kind)));
  expect_equal(run("xla", options, at::kDouble, train), run("cpu", options, at::kDouble, train), 1e-9);
}

TEST(XlaRecurrent, one_layer) {
  for (Kind kind : kinds) {
    expect_the_tensors_of_the_cpu({.kind = kind});
    expect_equal(run("xla", {.kind = kind}, at::kFloat), run("cpu", {.kind = kind}, at::kFloat), 1e-5);
  }
}

TEST(XlaRecurrent, layers_in_both_directions_without_biases) {
  for (Kind kind : {Kind::lstm, Kind::gru})
    expect_the_tensors_of_the_cpu({.kind = kind,
                                   .layers = 2,
                                   .bidirectional = true,
                                   .bias = false,
                                   .batch_first = true,
                                   .with_state = false});
}

TEST(XlaRecurrent, one_position) {
  for (Kind kind : kinds) expect_the_tensors_of_the_cpu({.kind = kind, .positions = 1});
}

TEST(XlaRecurrent, projections_of_an_lstm) {
  expect_the_tensors_of_the_cpu({.layers = 2, .projections = 3, .bidirectional = true});
}

// A probability of 1 leaves zeros between the layers, whatever is drawn.
TEST(XlaRecurrent, dropout_between_layers_in_training_only) {
  for (bool train : {true, false})
    expect_the_tensors_of_the_cpu({.kind = Kind::gru, .layers = 2, .dropout = 1}, train);
}

TEST(XlaRecurrent, packed_sequences) {
  for (Kind kind : kinds)
    expect_the_tensors_of_the_cpu({.kind = kind, .bidirectional = true, .lengths = {2, 6, 3}});
  expect_the_tensors_of_the_cpu({.layers = 2, .projections = 2, .lengths = {1, 1, 5}});
}

// The lengths come as inputs; only their sum, the longest and the number of sequences make a program.
TEST(XlaRecurrent, packed_sequences_of_other_lengths_take_no_other_program) {
  Accelerator accelerator({.device = "xla"});
  at::NoGradGuard no_grad;
  auto net = std::make_shared<Recurrent>(Options{.kind = Kind::gru});
  auto weights = accelerator.prepare(net).ptr()->gru->parameters();
  Tensor data = at::randn({8, features}), h = at::zeros({1, 3, hidden});
  auto last_of = [&](const std::vector<int64_t>& sizes, const at::Device& device, at::TensorList parameters) {
    return std::get<1>(
        at::gru(data.to(device), at::tensor(sizes), h.to(device), parameters, true, 1, 0.0, false, false));
  };
  int64_t programs = 0;
  for (const auto& sizes : {std::vector<int64_t>{3, 2, 2, 1}, {3, 3, 1, 1}}) {
    Tensor traced = last_of(sizes, accelerator.device(), weights);
    accelerator.end_step();
    std::vector<Tensor> copies;
    for (const Tensor& weight : weights) copies.push_back(weight.cpu());
    EXPECT_LE(difference(traced, last_of(sizes, at::kCPU, copies)), 1e-5);
    EXPECT_TRUE(programs == 0 || programs == xla::metrics().programs);
    programs = xla::metrics().programs;
  }
}

TEST(XlaRecurrent, without_gradients) {
  for (const auto inference : {false, true}) {
    std::vector<Tensor> results;
    for (const char* device : {"cpu", "xla"}) {
      Accelerator accelerator({.device = device});
      auto model = accelerator.prepare(std::make_shared<Recurrent>(Options{})).ptr();
      c10::InferenceMode mode(inference);  // false: allows gradients, so it comes first
      at::NoGradGuard no_grad;
      results.push_back(model->forward()[0]);
      EXPECT_FALSE(results.back().requires_grad());
      accelerator.end_step();
    }
    EXPECT_LE(difference(results[1], results[0]), 1e-5);
  }
}

TEST(XlaRecurrent, gradients_of_what_is_not_frozen) {
  std::vector<Tensor> gradients;
  for (const char* device : {"cpu", "xla"}) {
    Accelerator accelerator({.device = device});
    auto net = std::make_shared<Recurrent>(Options{});
    for (Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
    net->lstm->named_parameters()["weight_hh_l0"].requires_grad_(true);
    auto model = accelerator.prepare(net).ptr();
    auto results = model->forward();
    weighted({results[2]}).backward();
    accelerator.end_step();
    EXPECT_FALSE(model->input.grad().defined());
    gradients.push_back(model->lstm->named_parameters()["weight_hh_l0"].grad());
  }
  EXPECT_LE(difference(gradients[1], gradients[0]), 1e-5);
}

// A penalty on gradients. Its program is unrolled.
TEST(XlaRecurrent, gradient_of_a_gradient) {
  for (const Options& options :
       {Options{.positions = 3, .projections = 2}, Options{.kind = Kind::gru, .positions = 3},
        Options{.kind = Kind::rnn_tanh, .positions = 3, .bidirectional = true}}) {
    std::vector<Tensor> gradients;
    for (const char* device : {"cpu", "xla"}) {
      Accelerator accelerator({.device = device});
      auto net = std::make_shared<Recurrent>(options);
      net->to(at::kDouble);
      auto model = accelerator.prepare(net).ptr();
      auto slope = torch::autograd::grad({weighted(model->forward())}, {model->input}, {}, true, true)[0];
      slope.square().sum().backward();
      accelerator.end_step();
      for (const Tensor& parameter : model->parameters())
        if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    const size_t half = gradients.size() / 2;
    ASSERT_GE(half, 5u);
    for (size_t i = 0; i < half; ++i) EXPECT_LE(difference(gradients[half + i], gradients[i]), 1e-9) << i;
  }
}

// As cuDNN's: everything is bfloat16, but for the sums and the state within the loop.
TEST(XlaRecurrent, autocast) {
  auto tensors = [](const char* device, Precision precision) {
    Accelerator accelerator({.mixed_precision = precision, .device = device});
    auto net = std::make_shared<Recurrent>(Options{.kind = Kind::gru});
    auto model = accelerator.prepare(net).ptr();
    std::vector<Tensor> results;
    {
      auto scope = accelerator.autocast();
      results = model->forward();
    }
    EXPECT_EQ(results[0].scalar_type(), precision == Precision::bf16 ? at::kBFloat16 : at::kFloat);
    weighted(results).backward();
    accelerator.end_step();
    EXPECT_EQ(model->input.grad().scalar_type(), at::kFloat);
    return std::vector{results[0].detach().to(at::kFloat).cpu(), model->h.grad(), model->input.grad()};
  };
  auto half = tensors("xla", Precision::bf16), exact = tensors("cpu", Precision::no);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_LE(difference(half[i], exact[i]), 2e-2) << i;
}

TEST(XlaRecurrent, what_does_not_fit_is_said) {
  Accelerator accelerator({.device = "xla"});
  auto on_xla = [&](at::IntArrayRef sizes) { return at::zeros(sizes).to(accelerator.device()); };
  const std::vector<Tensor> weights{on_xla({12, 5}), on_xla({12, 4})};
  auto gru = [&](const Tensor& x, const Tensor& h, at::TensorList parameters) {
    return message_of([&] { at::gru(x, h, parameters, false, 1, 0.0, false, false, false); });
  };
  EXPECT_THAT(gru(on_xla({0, 2, 5}), on_xla({1, 2, 4}), weights), HasSubstr("at least one position"));
  EXPECT_THAT(gru(on_xla({3, 2, 5}), on_xla({1, 3, 4}), weights),
              HasSubstr("an initial state of sizes [1, 3, 4]"));
  EXPECT_THAT(gru(on_xla({3, 2, 5}), on_xla({1, 2, 7}), weights), HasSubstr("do not fit"));
  EXPECT_THAT(gru(on_xla({3, 2, 5}), on_xla({1, 2, 4}), {weights[0]}), HasSubstr("1 weights and biases"));
  EXPECT_THAT(gru(on_xla({3, 2, 5}), at::zeros({1, 2, 4}), weights), HasSubstr(".to(accelerator.device())"));
  EXPECT_THAT(gru(on_xla({3, 2, 5}), on_xla({1, 2, 4}).to(at::kDouble), weights), HasSubstr("Double"));
}

// --- the program -------------------------------------------------------------------------------------------

std::string program_of_a_step(const Options& options) {
  const xla::TemporaryFolder folder;
  setenv("IVME_XLA_DUMP", folder.path().c_str(), 1);
  const auto file = folder.path() / ("program_" + std::to_string(xla::metrics().programs) + ".mlir");
  run("xla", options, at::kFloat);
  unsetenv("IVME_XLA_DUMP");
  std::ifstream text(file);
  return {std::istreambuf_iterator<char>(text), {}};
}

TEST(XlaRecurrent, the_program_does_not_grow_with_the_sequence) {
  for (Kind kind : kinds) {
    const std::string text = program_of_a_step({.kind = kind, .positions = 16});
    const std::string longer = program_of_a_step({.kind = kind, .positions = 512});
    ASSERT_GT(text.size(), 1000U);
    EXPECT_LE(static_cast<double>(longer.size()), 1.2 * static_cast<double>(text.size()));
    EXPECT_EQ(std::ranges::count(longer, '\n'), std::ranges::count(text, '\n'));
    EXPECT_NE(text.find("stablehlo.while"), std::string::npos);
  }
}

}  // namespace
}  // namespace ivme
