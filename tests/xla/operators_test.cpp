// Calls of PyTorch, and their gradients, on xla against the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "ivme/ivme.h"

namespace ivme {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

// Two matrices with elements in (0.1, 1.2), images, vectors; all have a gradient.
struct Inputs : torch::nn::Module {
  Inputs() {
    at::manual_seed(1);
    a = register_parameter("a", at::rand({4, 6}) + 0.2);
    b = register_parameter("b", at::rand({4, 6}) + 0.1);
    images = register_parameter("images", at::randn({2, 4, 8, 8}));
    vectors = register_parameter("vectors", at::rand({2, 5, 8}));
  }
  Tensor a, b, images, vectors;
};

struct Call {
  const char* text;
  Tensor (*run)(const Tensor& a, const Tensor& b, const Tensor& images, const Tensor& vectors);
};

#define CALL(expression)                                                            \
  Call {                                                                            \
    #expression,                                                                    \
        []([[maybe_unused]] const Tensor& a, [[maybe_unused]] const Tensor& b,      \
           [[maybe_unused]] const Tensor& images,                                   \
           [[maybe_unused]] const Tensor& vectors) -> Tensor { return expression; } \
  }

struct Outcome {
  Tensor result;
  std::vector<Tensor> gradients;
};

// Each call begins with inputs of its own. On xla all of them are one program.
std::vector<Outcome> run(const std::string& device, const std::vector<Call>& calls) {
  Accelerator accelerator({.device = device});
  std::vector<std::shared_ptr<Inputs>> inputs;
  std::vector<Outcome> outcomes;
  for (const Call& call : calls) {
    inputs.push_back(std::make_shared<Inputs>());
    Inputs& in = *accelerator.prepare(inputs.back()).ptr();
    try {
      Tensor result = call.run(in.a, in.b, in.images, in.vectors);
      outcomes.push_back({result.detach(), {}});
      if (!result.requires_grad()) continue;
      auto weights = at::arange(result.numel()).to(result.scalar_type()).cos().view(result.sizes());
      (result * weights.to(accelerator.device())).sum().backward();
      for (const Tensor& input : {in.a, in.b, in.images, in.vectors})
        outcomes.back().gradients.push_back(input.grad());
    } catch (const std::exception& error) {
      ADD_FAILURE() << call.text << " on " << device << ": " << error.what();
      outcomes.push_back({at::zeros({0}), {}});
    }
  }
  accelerator.end_step();
  return outcomes;
}

bool agree(const Tensor& traced, const Tensor& eager) {
  if (traced.defined() != eager.defined()) return false;
  if (!eager.defined()) return true;
  return traced.sizes() == eager.sizes() && traced.scalar_type() == eager.scalar_type() &&
         traced.cpu().to(at::kDouble).allclose(eager.to(at::kDouble), 1e-4, 1e-5);
}

void expect_the_tensors_of_the_cpu(const std::vector<Call>& calls) {
  auto traced = run("xla", calls), eager = run("cpu", calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_TRUE(agree(traced[i].result, eager[i].result)) << calls[i].text << "\n" << traced[i].result.cpu();
    ASSERT_EQ(traced[i].gradients.size(), eager[i].gradients.size()) << calls[i].text;
    for (size_t g = 0; g < eager[i].gradients.size(); ++g)
      EXPECT_TRUE(agree(traced[i].gradients[g], eager[i].gradients[g]))
          << calls[i].text << ", gradient of input " << g;
  }
}

TEST(XlaOperators, factories) {
  expect_the_tensors_of_the_cpu({
      CALL(at::arange(7, a.options())),
      CALL(at::arange(7, a.options().dtype(at::kLong))),
      CALL(at::arange(2, 9, 3, a.options().dtype(at::kInt))),
      CALL(at::arange(1, -1, -0.25, a.options())),
      CALL(at::arange(3, 3, a.options())),
      CALL(at::full({2, 3}, 1.5, a.options())),
      CALL(at::ones_like(a).triu(1)),
      CALL(at::zeros({}, a.options().dtype(at::kBool))),
      CALL(at::scalar_tensor(2, a.options())),
      CALL(at::one_hot(a.mul(3).to(at::kLong), 5)),
  });
}

TEST(XlaOperators, views) {
  expect_the_tensors_of_the_cpu({
      CALL(a.chunk(3, 1)[1]),
      CALL(a.unflatten(1, {2, 3}).movedim(0, 1)),
      CALL(a.unfold(1, 2, 2)),
      CALL(a.as_strided({2, 3}, {1, 2}, 1)),
      CALL(a.diagonal(1)),
      CALL(a.split(2)[1]),
      CALL(a.repeat({2, 1})),
      CALL(a.repeat_interleave(2, 0)),
      CALL(a.tile({2, 2})),
      CALL(a.roll(1, 0)),
      CALL(at::stack({a, b}, 1)),
      CALL(at::meshgrid({a[0], b[0]}, "ij")[0]),
      CALL((a * 1).t_()),
      CALL((a * 1).transpose_(0, 1)),
      CALL((a * 1).unsqueeze_(0)),
      CALL((a * 1).view({4, 1, 6}).squeeze_()),
  });
}

TEST(XlaOperators, reductions) {
  expect_the_tensors_of_the_cpu({
      CALL(a.std()),
      CALL(a.var(1)),
      CALL(a.norm(1)),
      CALL(at::linalg_vector_norm(a, 3)),
      CALL(a.logsumexp(1)),
      CALL(a.cumsum(1)),
      CALL(a.cumprod(1)),
      CALL(a.prod(1)),
      CALL(std::get<0>(a.topk(3, 1))),
      CALL(std::get<1>(a.sort(1, /*descending=*/true))),
      CALL(std::get<0>(a.max(1))),
      CALL(a.argmax(1)),
      CALL((a > b).any(1)),
      CALL((a > b).sum()),
      CALL(at::cosine_similarity(a, b)),
  });
}

TEST(XlaOperators, arithmetic) {
  expect_the_tensors_of_the_cpu({
      CALL(at::lerp(a, b, 0.3)),
      CALL(at::addcmul(a, a, b, 2)),
      CALL(a.pow(b)),
      CALL(a.atan2(b)),
      CALL(a.remainder(0.3)),
      CALL(a.rsqrt() + a.log1p()),
      CALL(a.clamp(0.3, 0.7)),
      CALL(at::clamp(a, b - 0.1, b + 0.1)),
      CALL(a.masked_fill(b > 0.5, 0)),
      CALL(a.to(at::kDouble).sin().to(at::kFloat)),
      CALL(at::einsum("ij,kj->ik", {a, b})),
      CALL(at::tensordot(a, b, {1}, {1})),
      CALL(at::outer(a[0], b[0])),
      CALL(at::kron(a, b)),
      CALL(a.index_select(0, at::ones({2}, b.options().dtype(at::kInt)))),
      CALL(at::take_along_dim(a, b.mul(3).to(at::kLong), 1)),
      CALL(a.index({at::indexing::Ellipsis, b[0].mul(3).to(at::kLong)})),
      CALL(at::scatter_add(a, 1, b.mul(3).to(at::kLong), b)),
  });
}

TEST(XlaOperators, images) {
  expect_the_tensors_of_the_cpu({
      CALL(at::conv1d(vectors, vectors.slice(2, 0, 3), {}, 1, 1)),
      CALL(at::conv2d(images, images.slice(2, 0, 3).slice(3, 0, 3), {}, 2)),
      CALL(at::conv2d(images, images.view({4, 2, 8, 8}).slice(2, 0, 3).slice(3, 0, 3), {}, 1, 1, 1, 2)),
      CALL(
          at::conv_transpose2d(images, images.view({4, 2, 8, 8}).slice(2, 0, 3).slice(3, 0, 3), {}, 2, 1, 1)),
      CALL(at::avg_pool2d(images, 2)),
      CALL(at::max_pool2d(images, 3, 2, 1)),
      CALL(at::adaptive_avg_pool2d(images, {3, 3})),
      CALL(at::instance_norm(images, {}, {}, {}, {}, true, 0.1, 1e-5, false)),
      CALL(F::pad(images, F::PadFuncOptions({1, 1, 2, 0}).mode(torch::kReflect))),
      CALL(F::pad(images, F::PadFuncOptions({1, 1, 1, 1}).value(2))),
      CALL(F::lp_pool2d(images, F::LPPool2dFuncOptions(2, 2))),
      CALL(at::scaled_dot_product_attention(vectors, vectors, vectors)),
      CALL(at::scaled_dot_product_attention(vectors, vectors, vectors, {}, 0.0, /*is_causal=*/true)),
  });
}

TEST(XlaOperators, losses) {
  expect_the_tensors_of_the_cpu({
      CALL(F::huber_loss(a, b)),
      CALL(F::smooth_l1_loss(a, b)),
      CALL(F::l1_loss(a, b)),
      CALL(F::poisson_nll_loss(a, b)),
      CALL(F::triplet_margin_loss(a, b, a * b)),
      CALL(F::margin_ranking_loss(a, b, at::ones_like(a))),
      CALL(F::binary_cross_entropy(a.sigmoid(), b.detach().sigmoid())),
      CALL(F::binary_cross_entropy_with_logits(a, b)),
      CALL(F::kl_div(a.log_softmax(1), b.softmax(1), F::KLDivFuncOptions(torch::kBatchMean))),
      CALL(F::cross_entropy(a, b.softmax(1))),
      CALL(F::cross_entropy(a, b.argmax(1), F::CrossEntropyFuncOptions().label_smoothing(0.1))),
      CALL(F::nll_loss(a.log_softmax(1), b.argmax(1), F::NLLLossFuncOptions().ignore_index(2))),
  });
}

TEST(XlaOperators, numbers_of_the_host) {
  expect_the_tensors_of_the_cpu({
      CALL(at::linspace(0, 1, 7, a.options())),
      CALL(at::logspace(0, 2, 5, 10.0, a.options())),
      CALL(at::eye(3, a.options())),
      CALL(at::eye(2, 4, a.options().dtype(at::kInt))),
      CALL(at::tril_indices(3, 4, -1, a.options().dtype(at::kLong))),
      CALL(at::triu_indices(3, 4, 1, a.options().dtype(at::kLong))),
      CALL(at::affine_grid_generator(vectors.slice(1, 0, 2).slice(2, 0, 3), {2, 1, 4, 4}, false)),
  });
}

TEST(XlaOperators, parts_of_tensors) {
  expect_the_tensors_of_the_cpu({
      CALL(at::diag(a[0])),
      CALL(at::diag(a)),
      CALL(at::diag_embed(a, 1)),
      CALL(at::diagonal_scatter(a, b.diagonal())),
      CALL(at::select_scatter(a, b[0], 0, 1)),
      CALL(at::slice_scatter(a, b.slice(0, 0, 2), 0, 1, 3)),
      CALL(a.matmul(b.t()).trace()),
      CALL(at::pixel_shuffle(images, 2)),
      CALL(at::pixel_unshuffle(images, 2)),
      CALL(at::channel_shuffle(images, 2)),
      CALL(at::take(a, b.mul(9).to(at::kLong))),
      CALL(at::take(a, b.mul(9).to(at::kLong) - 24)),
  });
}

// Assigns a number to c = a where the mask is true.
Tensor with_put(const Tensor& a, const std::vector<std::optional<Tensor>>& mask, const Tensor& number) {
  Tensor c = a * 1;
  return c.index_put_(c10::List<std::optional<Tensor>>(mask), number);
}

TEST(XlaOperators, masks) {
  expect_the_tensors_of_the_cpu({
      CALL(with_put(a, {a > 0.5}, at::scalar_tensor(2))),
      CALL(with_put(a, {a > 0.5}, at::full({1}, 3.0, a.options()))),
      CALL(with_put(a, {b.select(1, 0) > 0.5}, at::scalar_tensor(2))),
      CALL(with_put(a, {std::nullopt, b[0] > 0.5}, at::scalar_tensor(2))),
      CALL(at::index_put(a, {a > 0.5}, at::scalar_tensor(2, a.options()), /*accumulate=*/true)),
      CALL(a.masked_fill(b > 0.5, b.sum())),
      CALL((a * 1).masked_fill_(b > 0.5, b.sum())),
      CALL(a.masked_scatter(a > 0.5, b)),
      CALL(at::count_nonzero(a > 0.5)),
      CALL(at::nansum(at::where(a > 0.5, a, NAN), 1)),
  });
}

TEST(XlaOperators, order) {
  expect_the_tensors_of_the_cpu({
      CALL(a.median()),
      CALL(std::get<0>(a.median(1))),
      CALL(std::get<0>(a.kthvalue(2, 1))),
      CALL(std::get<0>(a.cummax(1))),
      CALL(std::get<1>(a.cummin(1))),
      CALL(a.logcumsumexp(1)),
      CALL(at::searchsorted(std::get<0>(vectors[0].sort(1)), vectors[1])),
      CALL(at::bucketize(a, std::get<0>(b[0].sort(0)), false, /*right=*/true)),
      CALL(at::cdist(a, b)),
      CALL(at::cdist(vectors, vectors.slice(1, 0, 3), 1)),
      CALL(at::pdist(a)),
  });
}

TEST(XlaOperators, special_functions) {
  expect_the_tensors_of_the_cpu({
      CALL(a.lgamma()),
      CALL(at::erfinv(a.sigmoid())),
      CALL(at::logit(a.sigmoid())),
      CALL(at::sinc(a)),
      CALL(a.asinh() + (a + 1).acosh() + (a * 0.3).atanh()),
      CALL(at::fmax(a, b) * at::fmin(a, b * 2)),
      CALL(a.copysign(b - 0.5)),
      CALL((a - 0.5).sgn()),
      CALL(at::xlogy(a, 2) + at::xlogy(2, a)),
      CALL(at::linalg_cross(vectors.slice(2, 0, 3), vectors.slice(2, 1, 4))),
  });
}

TEST(XlaOperators, windows) {
  static const std::vector<int64_t> around{1, 1, 1, 1, 1, 1};
  expect_the_tensors_of_the_cpu({
      CALL(at::im2col(images, {3, 2}, {1, 1}, {1, 1}, {2, 2})),
      CALL(at::col2im(images.view({2, 4, 64}), {9, 9}, {2, 2}, {1, 1}, {0, 0}, {1, 1})),
      CALL(at::upsample_bicubic2d(images, {12, 16}, /*align_corners=*/false)),
      CALL(at::upsample_trilinear3d(images.unsqueeze(0), {8, 8, 16}, /*align_corners=*/true)),
      CALL(F::pad(images.unsqueeze(0), F::PadFuncOptions(around).mode(torch::kReflect))),
      CALL(F::adaptive_max_pool2d(images, F::AdaptiveMaxPool2dFuncOptions({3, 5}))),
      CALL(at::adaptive_avg_pool3d(images, {2, 3, 3})),
      CALL(at::max_unpool2d(at::max_pool2d(images, 2), std::get<1>(at::max_pool2d_with_indices(images, 2)),
                            {8, 8})),
      CALL(at::grid_sampler(images, images.slice(1, 0, 2).permute({0, 2, 3, 1}), 0, 0, false)),
      CALL(at::grid_sampler(images, images.slice(1, 0, 2).permute({0, 2, 3, 1}), 0, 1, true)),
      CALL(at::grid_sampler(images, images.slice(1, 0, 2).permute({0, 2, 3, 1}), 1, 2, false)),
  });
}

TEST(XlaOperators, layers_and_losses_of_few) {
  auto bags = [](int64_t mode, const Tensor& a, const Tensor& b, const std::optional<Tensor>& weights,
                 int64_t padding) {
    Tensor indices = b.mul(3.3).to(at::kLong).flatten();
    Tensor offsets = at::tensor({0, 5, 5, 12}, at::kLong).to(a.device());
    return std::get<0>(at::embedding_bag(a, indices, offsets, false, mode, false, weights, false, padding));
  };
  static const auto bag = +bags;
  expect_the_tensors_of_the_cpu({
      CALL(bag(0, a, b, b.flatten(), -1)),
      CALL(bag(1, a, b, std::nullopt, 1)),
      CALL(bag(2, a, b, std::nullopt, -1)),
      CALL(at::bilinear(a, b, images.view({8, 8, 8}).slice(1, 0, 6).slice(2, 0, 6), a[0].sum().expand({8}))),
      CALL(F::multi_margin_loss(a, b.argmax(1))),
      CALL(F::multilabel_margin_loss(
          a, at::tensor({1, 4, -1, 2, 2, 2}, at::kLong).repeat({4, 1}).to(a.device()))),
      CALL(at::soft_margin_loss(a, (b.detach() - 0.5).sign())),
      CALL(at::embedding_renorm(a.detach(), b.mul(2).to(at::kLong), 0.5, 2)),
      CALL(at::rrelu(a - 0.5, 0.25, 0.25, /*training=*/true)),
      CALL(at::rrelu(a - 0.5, 0.1, 0.3, /*training=*/false)),
  });
}

// libtorch's own gradients of these read values on the host.
TEST(XlaOperators, gradients_that_do_not_cut_the_step) {
  const std::vector<Call> calls = {
      CALL(a.max()),
      CALL(a.mul(2).round().max()),
      CALL(a.min()),
      CALL(a.median()),
      CALL(a.prod()),
      CALL(a.prod(1)),
      CALL((a - a[0]).prod(0)),
      CALL(a[0][0].prod()),
      CALL(a.prod(1, /*keepdim=*/true, at::kDouble)),
  };
  expect_the_tensors_of_the_cpu(calls);
  Accelerator accelerator({.device = "xla"});
  auto in = accelerator.prepare(std::make_shared<Inputs>()).ptr();
  const auto before = xla::metrics().executions;
  for (const Call& call : calls) call.run(in->a, in->b, in->images, in->vectors).sum().backward();
  const Tensor query = in->a * in->b;
  EXPECT_TRUE(at::equal(query, query.view({4, 6})));  // so asks nn::MultiheadAttention
  EXPECT_FALSE(at::equal(query, query.t()));
  accelerator.end_step();
  EXPECT_EQ(xla::metrics().executions - before, 1);
}

// d/da of |d(a³ b)/da|²: what a gradient penalty is made of.
TEST(XlaOperators, gradient_of_a_gradient) {
  std::vector<Tensor> gradients;
  for (const char* device : {"cpu", "xla"}) {
    Accelerator accelerator({.device = device});
    auto in = accelerator.prepare(std::make_shared<Inputs>()).ptr();
    auto loss = (in->a.pow(3) * in->b).sum() + at::conv2d(in->images, in->images).tanh().sum();
    accelerator.backward(loss, {.create_graph = true});
    auto first = in->a.grad(), of_images = in->images.grad();
    in->a.mutable_grad().reset();
    in->images.mutable_grad().reset();
    accelerator.backward(first.square().sum() + of_images.square().sum());
    accelerator.end_step();
    gradients.push_back(in->a.grad().cpu());
    gradients.push_back(in->images.grad().cpu());
  }
  EXPECT_TRUE(gradients[2].allclose(gradients[0], 1e-4, 1e-5));
  EXPECT_TRUE(gradients[3].allclose(gradients[1], 1e-4, 1e-4));
}

}  // namespace
}  // namespace ivme
