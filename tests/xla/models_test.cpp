// Models of the kinds people train, on xla against eager PyTorch on the CPU.
#include <ATen/ATen.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include "loop.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using test::expect_the_losses_of_the_cpu;

constexpr int steps = 10;

Tensor normal(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes, at::kDouble).to(type); }

// A step of one model and one optimizer, ten times. `loss_of` makes its batch on the CPU.
template <class Model, class Optimizer, class LossOf>
std::vector<double> train(Accelerator& accelerator, Model& model, Optimizer& optimizer, LossOf loss_of) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    Tensor loss = loss_of(step);
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(model, 1.0);
    optimizer.step();
    optimizer.zero_grad();
    accelerator.end_step();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

nn::Sequential make_cnn() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)), nn::BatchNorm2d(8),
                        nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1).stride(2).bias(false)),
                        nn::BatchNorm2d(16), nn::ReLU(), nn::AdaptiveAvgPool2d(1),
                        nn::Functional([](const Tensor& x) { return x.flatten(1); }), nn::Linear(16, 10));
}

struct CnnRun {
  std::vector<double> losses;
  std::vector<Tensor> buffers;
  double loss_in_evaluation;
};

CnnRun train_cnn(const std::string& device, at::ScalarType type) {
  Accelerator accelerator({.device = device});
  set_seed(1);
  auto net = make_cnn();
  net->to(type);
  auto [model, optimizer] =
      accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}));
  auto loss_of = [&, &network = model](int) {
    Tensor x = normal({16, 3, 12, 12}, type), y = at::randint(10, {16});
    return F::cross_entropy(network(x.to(accelerator.device())), y.to(accelerator.device()));
  };
  CnnRun run{train(accelerator, model, optimizer, loss_of), {}, 0};
  for (const Tensor& buffer : net->buffers()) run.buffers.push_back(buffer.cpu());
  at::NoGradGuard no_grad;
  net->eval();
  run.loss_in_evaluation = loss_of(0).item<double>();
  return run;
}

TEST(XlaModels, cnn_with_batch_norm) {
  expect_the_losses_of_the_cpu(
      [](const std::string& device, at::ScalarType type) { return train_cnn(device, type).losses; });
}

TEST(XlaModels, running_statistics_of_batch_norm) {
  CnnRun traced = train_cnn("xla", at::kDouble), eager = train_cnn("cpu", at::kDouble);
  ASSERT_EQ(traced.buffers.size(), 6u);
  for (size_t i = 0; i < eager.buffers.size(); ++i)
    EXPECT_TRUE(traced.buffers[i].allclose(eager.buffers[i], 1e-7, 1e-9)) << i;
  EXPECT_NEAR(traced.loss_in_evaluation, eager.loss_in_evaluation, 1e-7);
}

// A decoder block of a language model: causal attention, then a layer of GELU.
struct TransformerImpl : nn::Module {
  static constexpr int64_t width = 32, heads = 4;
  nn::Embedding embedding = register_module("embedding", nn::Embedding(20, width));
  nn::LayerNorm before = register_module("before", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::LayerNorm between = register_module("between", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear qkv = register_module("qkv", nn::Linear(width, 3 * width));
  nn::Linear projection = register_module("projection", nn::Linear(width, width));
  nn::Linear wide = register_module("wide", nn::Linear(width, 4 * width));
  nn::Linear narrow = register_module("narrow", nn::Linear(4 * width, width));
  nn::Linear head = register_module("head", nn::Linear(width, 20));

  Tensor attention(const Tensor& x) {
    int64_t batch = x.size(0), length = x.size(1);
    auto parts = qkv(x).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    Tensor scores = at::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(width / heads);
    Tensor future = at::ones({length, length}, x.options().dtype(at::kBool)).triu(1);
    Tensor weights = scores.masked_fill(future, -INFINITY).softmax(-1);
    return projection(at::matmul(weights, parts[2]).transpose(1, 2).reshape({batch, length, width}));
  }
  Tensor forward(const Tensor& letters) {
    Tensor x = embedding(letters);
    x = x + attention(before(x));
    x = x + narrow(at::gelu(wide(between(x))));
    return head(x);
  }
};
TORCH_MODULE(Transformer);

TEST(XlaModels, transformer_block_with_masked_attention) {
  expect_the_losses_of_the_cpu([](const std::string& device, at::ScalarType type) {
    Accelerator accelerator({.device = device});
    set_seed(2);
    Transformer net;
    net->to(type);
    auto [model, optimizer] = accelerator.prepare(net, optim::AdamW(net->parameters(), {.lr = 1e-3}));
    return train(accelerator, model, optimizer, [&, &network = model](int) {
      Tensor letters = at::randint(20, {4, 13}).to(accelerator.device());
      Tensor logits = network(letters.slice(1, 0, 12));
      return F::cross_entropy(logits.reshape({-1, 20}), letters.slice(1, 1).reshape({-1}));
    });
  });
}

nn::Sequential make_generator() {
  return nn::Sequential(
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 16, 4).bias(false)), nn::BatchNorm2d(16), nn::ReLU(),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(16, 1, 4).stride(2).padding(1)), nn::Tanh());
}
nn::Sequential make_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 4).stride(2).padding(1)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(16, 1, 4)),
                        nn::Functional([](const Tensor& x) { return x.flatten(); }));
}

// Both networks' losses, one after the other.
std::vector<double> train_gan(const std::string& device, at::ScalarType type) {
  Accelerator accelerator({.device = device});
  set_seed(3);
  auto painter = make_generator(), judge = make_discriminator();
  painter->to(type), judge->to(type);
  optim::AdamOptions options{.lr = 2e-4, .betas = {0.5, 0.999}};
  auto [generator, discriminator, generator_step, discriminator_step] = accelerator.prepare(
      painter, judge, optim::Adam(painter->parameters(), options), optim::Adam(judge->parameters(), options));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    Tensor real = normal({8, 1, 8, 8}, type).tanh().to(accelerator.device());
    Tensor fake = generator(normal({8, 8, 1, 1}, type).to(accelerator.device()));
    Tensor ones = at::ones({8}, real.options()), zeros = at::zeros({8}, real.options());
    discriminator_step.zero_grad();
    Tensor of_judge = F::binary_cross_entropy_with_logits(discriminator(real), ones) +
                      F::binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros);
    accelerator.backward(of_judge);
    discriminator_step.step();
    generator_step.zero_grad();
    Tensor of_painter = F::binary_cross_entropy_with_logits(discriminator(fake), ones);
    accelerator.backward(of_painter);
    generator_step.step();
    accelerator.end_step();
    losses.push_back(of_judge.item<double>());
    losses.push_back(of_painter.item<double>());
  }
  return losses;
}

TEST(XlaModels, gan_with_transposed_convolutions) { expect_the_losses_of_the_cpu(train_gan); }

// One level of a U-Net: down, up again, joined with what was there before.
struct UNetImpl : nn::Module {
  nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)));
  nn::GroupNorm norm = register_module("norm", nn::GroupNorm(nn::GroupNormOptions(4, 8)));
  nn::Conv2d down = register_module("down", nn::Conv2d(nn::Conv2dOptions(8, 16, 3).stride(2).padding(1)));
  nn::Conv2d last = register_module("last", nn::Conv2d(nn::Conv2dOptions(24, 1, 3).padding(1)));
  F::InterpolateFuncOptions upsampling;

  explicit UNetImpl(bool bilinear) {
    upsampling.scale_factor(std::vector<double>{2, 2});
    if (bilinear)
      upsampling.mode(torch::kBilinear).align_corners(false);
    else
      upsampling.mode(torch::kNearest);
  }
  Tensor forward(const Tensor& x) {
    Tensor wide = at::silu(norm(first(x)));
    Tensor low = at::silu(down(wide));
    return last(at::cat({wide, F::interpolate(low, upsampling)}, 1));
  }
};
TORCH_MODULE(UNet);

std::vector<double> train_unet(const std::string& device, at::ScalarType type, bool bilinear) {
  Accelerator accelerator({.device = device});
  set_seed(4);
  UNet net(bilinear);
  net->to(type);
  auto [model, optimizer] = accelerator.prepare(net, optim::AdamW(net->parameters(), {.lr = 1e-3}));
  return train(accelerator, model, optimizer, [&, &network = model](int) {
    Tensor image = normal({4, 1, 8, 8}, type), noise = normal({4, 1, 8, 8}, type);
    return F::mse_loss(network((image + noise).to(accelerator.device())), noise.to(accelerator.device()));
  });
}

TEST(XlaModels, u_net_with_group_norm_and_nearest_upsampling) {
  expect_the_losses_of_the_cpu([](const std::string& device, at::ScalarType type) {
    return train_unet(device, type, /*bilinear=*/false);
  });
}

TEST(XlaModels, u_net_with_bilinear_upsampling) {
  expect_the_losses_of_the_cpu([](const std::string& device, at::ScalarType type) {
    return train_unet(device, type, /*bilinear=*/true);
  });
}

nn::Sequential make_q_network() { return nn::Sequential(nn::Linear(4, 32), nn::ReLU(), nn::Linear(32, 3)); }

// The target network takes the values of the trained one every third step.
TEST(XlaModels, dqn_with_a_target_network) {
  expect_the_losses_of_the_cpu([](const std::string& device, at::ScalarType type) {
    Accelerator accelerator({.device = device});
    set_seed(5);
    auto net = make_q_network(), old = make_q_network();
    net->to(type), old->to(type);
    auto [model, target, optimizer] =
        accelerator.prepare(net, old, optim::AdamW(net->parameters(), {.lr = 1e-2}));
    return train(accelerator, model, optimizer, [&, &network = model, &frozen = target](int step) {
      auto device_of = [&](const Tensor& tensor) { return tensor.to(accelerator.device()); };
      at::NoGradGuard no_grad;
      if (step % 3 == 0)
        for (size_t i = 0; i < net->parameters().size(); ++i)
          old->parameters()[i].copy_(net->parameters()[i]);
      Tensor state = device_of(normal({16, 4}, type)), next = device_of(normal({16, 4}, type));
      Tensor action = device_of(at::randint(3, {16, 1})), reward = device_of(normal({16}, type));
      Tensor done = device_of(at::rand({16}).lt(0.2));
      Tensor best = std::get<0>(frozen(next).max(1)) * done.logical_not();
      at::AutoGradMode grad(true);
      Tensor value = network(state).gather(1, action).squeeze(1);
      return F::smooth_l1_loss(value, reward + 0.9 * best);
    });
  });
}

struct LstmClassifierImpl : nn::Module {
  nn::Embedding embedding = register_module("embedding", nn::Embedding(20, 12));
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(12, 16).num_layers(2).batch_first(true)));
  nn::Linear head = register_module("head", nn::Linear(16, 3));

  Tensor forward(const Tensor& words) { return head(std::get<0>(lstm(embedding(words))).select(1, -1)); }
};
TORCH_MODULE(LstmClassifier);

TEST(XlaModels, lstm_classifier) {
  expect_the_losses_of_the_cpu([](const std::string& device, at::ScalarType type) {
    Accelerator accelerator({.device = device});
    set_seed(6);
    LstmClassifier net;
    net->to(type);
    auto [model, optimizer] = accelerator.prepare(net, optim::AdamW(net->parameters(), {.lr = 1e-2}));
    return train(accelerator, model, optimizer, [&, &network = model](int) {
      Tensor words = at::randint(20, {8, 6}), label = at::randint(3, {8});
      return F::cross_entropy(network(words.to(accelerator.device())), label.to(accelerator.device()));
    });
  });
}

}  // namespace
}  // namespace ivme
