// The models of the examples, on their data, against eager PyTorch on the CPU: step by step in float32, each
// step begun from eager's state; the first losses of a free run; and 50 free steps in float64.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "ivme/ivme.h"
#include "loop.h"
#include "ranks.h"
#include "support/datasets.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

// --- models, without dropout -------------------------------------------------------------------------------

nn::Sequential make_mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                        nn::Linear(256, 10));
}

nn::Sequential make_cnn(bool batch_norm) {
  nn::Sequential net;
  auto convolve = [&](int64_t in, int64_t out) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    if (batch_norm) net->push_back(nn::BatchNorm2d(out));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool2d(2));
  };
  convolve(1, 16);
  convolve(16, 32);
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(32 * 4, 128));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(128, 10));
  return net;
}

constexpr int64_t width = 64, heads = 4;

struct BlockImpl : nn::Module {
  nn::LayerNorm ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear qkv = register_module("qkv", nn::Linear(width, 3 * width));
  nn::Linear proj = register_module("proj", nn::Linear(width, width));
  nn::LayerNorm ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear fc1 = register_module("fc1", nn::Linear(width, 4 * width));
  nn::Linear fc2 = register_module("fc2", nn::Linear(4 * width, width));

  Tensor forward(Tensor x) {
    const int64_t batch = x.size(0), time = x.size(1);
    auto parts = qkv(ln1(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
    auto attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + proj(attended.transpose(1, 2).reshape({batch, time, width}));
    return x + fc2(torch::gelu(fc1(ln2(x))));
  }
};
TORCH_MODULE(Block);

// Its embedding is its last layer's weight too.
struct LanguageModelImpl : nn::Module {
  nn::Embedding emb;
  Block b0 = register_module("b0", Block()), b1 = register_module("b1", Block());
  nn::LayerNorm lnf = register_module("lnf", nn::LayerNorm(nn::LayerNormOptions({width})));

  explicit LanguageModelImpl(int64_t vocabulary)
      : emb(register_module("emb", nn::Embedding(vocabulary, width))) {
    nn::init::normal_(emb->weight, 0.0, 0.02);
  }
  Tensor forward(const Tensor& letters) { return torch::linear(lnf(b1(b0(emb(letters)))), emb->weight); }
};
TORCH_MODULE(LanguageModel);

// --- data --------------------------------------------------------------------------------------------------

struct Digits {
  examples::Images images = examples::load_images("digits", "").train;
  int64_t batch_size = 64;

  Batch batch(int64_t step) const {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < batch_size; ++i) indices.push_back((step * batch_size + i) % images.size());
    return images.get_batch(indices);
  }
};

struct Letters {
  examples::TextSplits text = examples::load_text("");

  Batch batch(int64_t step) const {
    return text.train.get_batch({4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3});
  }
};

Tensor to_type(const Tensor& tensor, at::ScalarType type) {
  return tensor.is_floating_point() ? tensor.to(type) : tensor;
}

// --- one side ----------------------------------------------------------------------------------------------

template <class Make>
class Side {
 public:
  using Holder = std::invoke_result_t<Make>;
  using Impl = typename Holder::ContainedType;

  Side(Make make, const std::string& device, at::ScalarType type, optim::SGDOptions options,
       int64_t accumulation = 1)
      : accelerator_({.gradient_accumulation_steps = accumulation, .device = device}), type_(type) {
    set_seed(7);
    Holder net = make();
    net->to(type);
    net_ = net.ptr();
    model_.emplace(accelerator_.prepare(net));
    optimizer_.emplace(accelerator_.prepare(optim::SGD(net->parameters(), options)));
  }

  // The loss of one micro-batch; the gradients stay until the next.
  double step(const Batch& batch) {
    auto scope = accelerator_.accumulate(*model_);
    if (accelerator_.gradient_accumulation_steps() == 1) optimizer_->zero_grad();
    auto output = (*model_)(to_type(batch.data, type_).to(accelerator_.device()));
    auto loss = F::cross_entropy(output.reshape({-1, output.size(-1)}),
                                 batch.target.reshape(-1).to(accelerator_.device()));
    accelerator_.backward(loss);
    optimizer_->step();
    if (accelerator_.gradient_accumulation_steps() > 1) optimizer_->zero_grad();
    accelerator_.end_step();
    return loss.template item<double>();
  }

  // Parameters, then gradients, then buffers, on the CPU.
  std::vector<std::pair<std::string, Tensor>> state() const {
    std::vector<std::pair<std::string, Tensor>> all;
    for (const auto& item : net_->named_parameters())
      all.emplace_back(item.key(), item.value().detach().cpu());
    for (const auto& item : net_->named_parameters())
      if (item.value().grad().defined())
        all.emplace_back("gradient of " + item.key(), item.value().grad().detach().cpu());
    for (const auto& item : net_->named_buffers()) all.emplace_back(item.key(), item.value().cpu());
    return all;
  }

  void take_state_of(const Side& other) {
    at::NoGradGuard no_grad;
    auto copy = [](std::vector<Tensor> to, const std::vector<Tensor>& from) {
      for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    };
    copy(net_->parameters(), other.net_->parameters());
    copy(net_->buffers(), other.net_->buffers());
    accelerator_.end_step();
  }

 private:
  Accelerator accelerator_;
  at::ScalarType type_;
  std::shared_ptr<Impl> net_;
  std::optional<PreparedModel<Impl>> model_;
  std::optional<PreparedOptimizer> optimizer_;
};

// The norm of the difference over the norm.
double relative(const Tensor& a, const Tensor& b) {
  const double size = b.to(at::kDouble).norm().item<double>();
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / (size > 0 ? size : 1);
}

constexpr optim::SGDOptions plain = {.lr = 0.05}, momentum = {.lr = 0.05, .momentum = 0.9};

// `exempt`: what has a gradient of zero but for rounding.
template <class Make, class Data>
void expect_equal_steps(Make make, const Data& data, const std::set<std::string>& exempt = {}) {
  Side eager(make, "cpu", at::kFloat, plain), xla(make, "xla", at::kFloat, plain);
  for (int64_t step = 0; step < 5; ++step) {
    xla.take_state_of(eager);
    const double expected = eager.step(data.batch(step)), loss = xla.step(data.batch(step));
    EXPECT_LE(std::abs(loss - expected), 1e-5 * expected) << step;
    auto states = eager.state(), computed = xla.state();
    ASSERT_EQ(states.size(), computed.size());
    for (size_t i = 0; i < states.size(); ++i) {
      const auto& [name, tensor] = states[i];
      if (!exempt.count(name))
        EXPECT_LE(relative(computed[i].second, tensor), 1e-5) << name << ", step " << step;
    }
  }
}

template <class Make, class Data>
std::vector<double> losses(Make make, const Data& data, const std::string& device, at::ScalarType type,
                           int64_t steps) {
  Side side(make, device, type, momentum);
  std::vector<double> all;
  for (int64_t step = 0; step < steps; ++step) all.push_back(side.step(data.batch(step)));
  return all;
}

// 10 free steps in float32, 50 in float64.
template <class Make, class Data>
void expect_equal_runs(Make make, const Data& data, double float_tolerance = 1e-5) {
  test::expect_close(losses(make, data, "xla", at::kFloat, 10), losses(make, data, "cpu", at::kFloat, 10),
                     float_tolerance);
  test::expect_close(losses(make, data, "xla", at::kDouble, 50), losses(make, data, "cpu", at::kDouble, 50),
                     1e-7);
}

auto cnn = [] { return make_cnn(false); };
auto cnn_bn = [] { return make_cnn(true); };

TEST(XlaJudged, mlp_step_by_step) { expect_equal_steps(make_mlp, Digits()); }
TEST(XlaJudged, cnn_step_by_step) { expect_equal_steps(cnn, Digits()); }
// The biases of the convolutions, layers 0 and 4, are taken away again by the mean.
TEST(XlaJudged, cnn_bn_step_by_step) {
  expect_equal_steps(cnn_bn, Digits(), {"gradient of 0.bias", "gradient of 4.bias"});
}
TEST(XlaJudged, char_lm_step_by_step) {
  Letters letters;
  expect_equal_steps([&] { return LanguageModel(letters.text.vocabulary); }, letters);
}

TEST(XlaJudged, mlp_free) { expect_equal_runs(make_mlp, Digits()); }
TEST(XlaJudged, cnn_free) { expect_equal_runs(cnn, Digits()); }
TEST(XlaJudged, cnn_bn_free) { expect_equal_runs(cnn_bn, Digits(), 1e-2); }
TEST(XlaJudged, char_lm_free) {
  Letters letters;
  expect_equal_runs([&] { return LanguageModel(letters.text.vocabulary); }, letters);
}

// 8 micro-batches of 8 are a batch of 64: two programs, an execution for each micro-batch, the same weights
// after 50 updates.
TEST(XlaJudged, accumulation_equals_the_big_batch) {
  Side big(make_mlp, "xla", at::kDouble, momentum), accumulated(make_mlp, "xla", at::kDouble, momentum, 8);
  const Digits batches{.batch_size = 64}, micro_batches{.batch_size = 8};
  for (int64_t step = 0; step < 20; ++step) big.step(batches.batch(step));
  const auto before = xla::metrics();
  for (int64_t step = 0; step < 20; ++step)
    for (int64_t i = 0; i < 8; ++i) accumulated.step(micro_batches.batch(8 * step + i));
  const auto after = xla::metrics();
  EXPECT_EQ(after.programs - before.programs, 2);
  EXPECT_EQ(after.executions - before.executions, 160);
  for (int64_t step = 20; step < 50; ++step) {
    big.step(batches.batch(step));
    for (int64_t i = 0; i < 8; ++i) accumulated.step(micro_batches.batch(8 * step + i));
  }
  auto expected = big.state(), state = accumulated.state();
  for (size_t i = 0; i < 6; ++i)
    EXPECT_LE(relative(state[i].second, expected[i].second), 1e-9) << expected[i].first;
}

// --- tied weights ------------------------------------------------------------------------------------------

// As a Python program has it: the last layer's weight is a parameter of its own name, tied to the embedding.
struct TiedLanguageModelImpl : LanguageModelImpl {
  Tensor decoder;
  int ties = 0;

  explicit TiedLanguageModelImpl(int64_t vocabulary) : LanguageModelImpl(vocabulary) {
    decoder = register_parameter("decoder", emb->weight);
  }
  void tie_weights() {
    decoder = parameters_["decoder"] = emb->weight;
    ++ties;
  }
  Tensor forward(const Tensor& letters) { return torch::linear(lnf(b1(b0(emb(letters)))), decoder); }
};
TORCH_MODULE(TiedLanguageModel);

Tensor loss_of(const Tensor& logits, const Tensor& target) {
  return F::cross_entropy(logits.reshape({-1, logits.size(-1)}), target.reshape(-1));
}

constexpr int64_t tied_steps = 5;

TiedLanguageModel make_tied(const Letters& letters) {
  at::manual_seed(5);
  TiedLanguageModel net(letters.text.vocabulary);
  net->to(at::kDouble);
  return net;
}

// In plain libtorch, on whole batches.
Tensor trained_embedding(const Letters& letters) {
  auto net = make_tied(letters);
  std::vector<Tensor> once;
  for (const Tensor& parameter : net->parameters())
    if (std::none_of(once.begin(), once.end(), [&](const Tensor& known) { return known.is_same(parameter); }))
      once.push_back(parameter);
  torch::optim::SGD all(once, torch::optim::SGDOptions(0.1));
  for (int64_t step = 0; step < tied_steps; ++step) {
    auto batch = letters.batch(step);
    all.zero_grad();
    loss_of(net->forward(batch.data), batch.target).backward();
    all.step();
  }
  return net->emb->weight.detach();
}

// With the line of Hugging Face's page after prepare.
void expect_the_tie_to_be_kept(const std::string& device) {
  const Letters letters;
  const Tensor expected = trained_embedding(letters);
  auto net = make_tied(letters);
  Accelerator accelerator({.device = device});
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1}));
  EXPECT_EQ(net->ties, 1) << "by prepare";
  if (accelerator.distributed_type() == DistributedType::TPU) model->tie_weights();
  EXPECT_EQ(net->ties, device == "xla" ? 2 : 1);
  const int64_t share = 4 / accelerator.num_processes(), first = share * accelerator.process_index();
  for (int64_t step = 0; step < tied_steps; ++step) {
    auto batch = letters.batch(step);
    auto mine = [&](const Tensor& t) { return t.narrow(0, first, share).to(accelerator.device()); };
    optimizer.zero_grad();
    accelerator.backward(loss_of(model(mine(batch.data)), mine(batch.target)));
    optimizer.step();
    accelerator.end_step();
  }
  EXPECT_TRUE(net->decoder.is_same(net->emb->weight));
  EXPECT_LE(relative(net->emb->weight.detach().cpu(), expected), 1e-9);
}

TEST(TiedCharLm, on_the_cpu) { expect_the_tie_to_be_kept("cpu"); }
TEST(TiedCharLm, on_xla) { expect_the_tie_to_be_kept("xla"); }
RANKS_TEST(2, TiedCharLm, on_two_processes) { expect_the_tie_to_be_kept("cpu"); }

}  // namespace
}  // namespace ivme
