// Sequences of many lengths on xla: a program for each bucket, and the numbers of the CPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "ivme/ivme.h"
#include "loop.h"
#include "message_of.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using testing::HasSubstr;

int64_t length_of(int64_t index) { return 5 + index * 7 % 60; }  // 5 to 64

std::vector<int64_t> lengths(int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(length_of(i));
  return all;
}

// Texts of 5 to 64 tokens, with a class for the text or for each token.
template <bool for_each_token>
struct Texts {
  int64_t count;
  int64_t size() const { return count; }
  std::pair<Tensor, Tensor> get(size_t index) const {
    auto i = static_cast<int64_t>(index);
    auto tokens = (at::arange(length_of(i)) * (i + 1)).remainder(11);
    return {tokens, for_each_token ? (tokens + 1).remainder(4) : at::full({}, i % 4, at::kLong)};
  }
};

struct ReaderImpl : nn::Module {
  nn::Embedding vectors = register_module("vectors", nn::Embedding(11, 8));
  nn::Linear classes = register_module("classes", nn::Linear(8, 4));
  bool for_each_token;
  explicit ReaderImpl(bool each) : for_each_token(each) {}
  Tensor forward(const SequenceBatch& batch) {
    Tensor x = vectors(batch.data).tanh();
    if (for_each_token) return classes(x).flatten(0, 1);
    Tensor kept = x * batch.tokens.unsqueeze(2);
    return classes(kept.sum(1) / batch.lengths.unsqueeze(1));
  }
};
TORCH_MODULE(Reader);

struct Run {
  std::vector<double> losses, hits;
  int64_t programs = 0;
};

template <bool for_each_token>
Run train(const char* device, int64_t count = 100) {
  Accelerator accelerator({.device = device});
  set_seed(4);
  auto buckets = length_buckets({16, 32, 64}, lengths(count));
  Reader net(for_each_token);
  net->to(at::kDouble);
  auto [model, optimizer, loader] = accelerator.prepare(
      net, optim::SGD(net->parameters(), {.lr = 0.1, .momentum = 0.9}),
      data_loader(Texts<for_each_token>{count}, {.batch_size = 8, .shuffle = true, .buckets = buckets},
                  pad_to_bucket(buckets)));
  const auto before = xla::metrics();
  Run run;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : loader) {
      auto output = model(batch);
      auto loss = F::cross_entropy(output, batch.target.flatten());
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      run.losses.push_back(loss.template item<double>());
      if (for_each_token) continue;
      auto hits = accelerator.gather_for_metrics(output.argmax(1) == batch.target);
      for (int64_t i = 0; i < hits.size(0); ++i) run.hits.push_back(hits[i].template item<bool>());
    }
  run.programs = xla::metrics().programs - before.programs;
  return run;
}

TEST(XlaSequences, texts_of_5_to_64_tokens_train_with_3_programs_as_on_the_cpu) {
  auto eager = train<true>("cpu"), traced = train<true>("xla");
  test::expect_close(traced.losses, eager.losses, 1e-9);
  EXPECT_EQ(traced.programs, 3);
  EXPECT_GT(eager.losses.size(), 3u * 100u / 8u);
}

TEST(XlaSequences, a_class_for_each_text_trains_with_3_programs_as_on_the_cpu) {
  auto eager = train<false>("cpu"), traced = train<false>("xla");
  test::expect_close(traced.losses, eager.losses, 1e-9);
  EXPECT_EQ(eager.hits.size(), 300u);  // each text once an epoch, whatever batch it was in
  EXPECT_EQ(traced.hits, eager.hits);
}

// --- batches made ahead ------------------------------------------------------------------------------------

struct Numbered {
  int64_t count;
  std::shared_ptr<std::set<std::thread::id>> threads = std::make_shared<std::set<std::thread::id>>();
  std::chrono::milliseconds takes{0};
  int64_t damaged = -1;
  int64_t size() const { return count; }
  Batch get_batch(const std::vector<int64_t>& indices) const {
    threads->insert(std::this_thread::get_id());
    std::this_thread::sleep_for(takes);
    if (indices[0] == damaged) throw std::runtime_error("sample " + std::to_string(damaged) + " is damaged");
    auto rows = detail::tensor_of(indices);
    return {rows.unsqueeze(1).expand({-1, 4}).to(at::kFloat), rows.remainder(3)};
  }
};

std::vector<double> sums(const Numbered& dataset, std::optional<int64_t> prefetch) {
  Accelerator accelerator({.device = "xla"});
  set_seed(6);
  nn::Linear net(4, 3);
  auto [model, optimizer, loader] = accelerator.prepare(
      net, optim::SGD(net->parameters(), {.lr = 1e-4}),
      data_loader(dataset, {.batch_size = 4, .shuffle = dataset.damaged < 0, .prefetch = prefetch}));
  std::vector<double> losses;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : loader) {
      auto loss = F::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      losses.push_back(loss.template item<double>());
    }
  return losses;
}

TEST(XlaPrefetching, batches_are_made_on_another_thread_and_are_the_same) {
  Numbered here{150}, there{150}, deep{150};
  auto expected = sums(here, 0);
  const auto before = xla::metrics();
  EXPECT_EQ(sums(there, {}), expected);
  EXPECT_EQ(sums(deep, 8), expected);
  EXPECT_EQ(xla::metrics().programs, before.programs);
  EXPECT_EQ(xla::metrics().executions - before.executions, 2 * 2 * 38);
  EXPECT_EQ(here.threads->size(), 1u);
  EXPECT_GE(there.threads->size(), 2u);
}

TEST(XlaPrefetching, what_reading_a_batch_throws_reaches_the_loop) {
  Numbered dataset{100};
  dataset.damaged = 40;
  try {
    sums(dataset, {});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(), "sample 40 is damaged");
  }
  Numbered whole{100};
  EXPECT_EQ(sums(whole, {}).size(), 50u);  // the device is as it was
}

TEST(XlaPrefetching, a_loop_that_is_left_leaves_nothing_on_the_device) {
  const auto before = xla::metrics();
  for (int steps = 1; steps < 6; ++steps) {
    Accelerator accelerator({.device = "xla"});
    auto loader = accelerator.prepare(data_loader(Numbered{100}, {.batch_size = 4, .prefetch = 3}));
    int done = 0;
    for (auto& batch : loader)
      if (batch.data.defined() && ++done == steps) break;
  }
  EXPECT_EQ(xla::metrics().live_buffers, before.live_buffers);
}

TEST(XlaPrefetching, a_loop_that_starves_is_told_once) {
  Numbered slow{300};
  slow.takes = std::chrono::milliseconds(10);
  testing::internal::CaptureStderr();
  sums(slow, {});
  std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("ivme: the loop waited for its loader ");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("waited for its loader", first + 30), std::string::npos) << said;
}

}  // namespace
}  // namespace ivme
