// One observed batch, however it is cut, gives one training: 1 x 256 = 2 x 128 = 4 x 64.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "ivme/ivme.h"
#include "ranks.h"

namespace ivme {
namespace {

namespace nn = torch::nn;

// 4096 points of 64 features in 10 classes, the same in every process.
struct Points {
  Points() {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    data = at::randn({4096, 64}, generator, at::kDouble);
    target = data.matmul(at::randn({64, 10}, generator, at::kDouble)).argmax(1);
  }
  int64_t size() const { return data.size(0); }
  Batch get_batch(const std::vector<int64_t>& indices) const {
    auto rows = at::tensor(indices, at::kLong);
    return {data.index_select(0, rows), target.index_select(0, rows)};
  }
  at::Tensor data, target;
};

nn::Sequential make_mlp(double dropout) {
  nn::Sequential net;
  net->push_back(nn::Linear(64, 32));
  net->push_back(nn::ReLU());
  if (dropout > 0) net->push_back(nn::Dropout(dropout));
  net->push_back(nn::Linear(32, 32));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(32, 10));
  return net;
}

struct Setup {
  at::ScalarType dtype = at::kDouble;
  int64_t batch_size = 256;
  int64_t accumulation = 1;
  int updates = 200;
  bool adamw = false;
  double dropout = 0;  // keyed by rows
};

// The mean loss of each update, then every parameter, as doubles.
std::vector<double> train(const Setup& setup) {
  Accelerator accelerator(
      {.gradient_accumulation_steps = setup.accumulation, .row_keyed_dropout = setup.dropout > 0});
  set_seed(42);
  auto net = make_mlp(setup.dropout);
  net->to(setup.dtype);
  auto raw = setup.adamw ? optim::Optimizer(optim::AdamW(net->parameters(), {.lr = 1e-3}))
                         : optim::Optimizer(optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}));
  auto [model, optimizer, batches] =
      accelerator.prepare(net, raw, data_loader(Points(), {.batch_size = setup.batch_size, .shuffle = true}));
  std::vector<double> numbers;
  double loss_of_update = 0;
  for (int updates = 0; updates < setup.updates;) {
    for (auto& batch : batches) {
      auto accumulating = accelerator.accumulate(model);
      auto loss = nn::functional::cross_entropy(model(batch.data.to(setup.dtype)), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      loss_of_update += accelerator.reduce(loss.detach().to(at::kDouble), Reduction::mean).item<double>() /
                        setup.accumulation;
      if (!accelerator.sync_gradients()) continue;
      numbers.push_back(std::exchange(loss_of_update, 0));
      if (++updates == setup.updates) break;
    }
  }
  for (const auto& parameter : net->parameters()) {
    auto values = parameter.detach().to(at::kDouble).flatten();
    numbers.insert(numbers.end(), values.const_data_ptr<double>(),
                   values.const_data_ptr<double>() + values.numel());
  }
  return numbers;
}

// Trains on `ranks` ranks (this test again, through `ivme launch`) and returns rank 0's numbers.
std::vector<double> train_on(int ranks, const Setup& setup) {
  std::string path = ::testing::TempDir() + "ivme_equivalence_" + std::to_string(getpid()) + ".bin";
  std::string environment = "IVME_TEST_OUT=" + path + " IVME_TEST_BATCH=" + std::to_string(setup.batch_size) +
                            " IVME_TEST_ACCUMULATION=" + std::to_string(setup.accumulation);
  auto ended = test::run_on_ranks(ranks, environment);
  EXPECT_EQ(ended.code, 0) << ended.output;
  std::ifstream file(path, std::ios::binary);
  std::vector<double> numbers;
  for (double number; file.read(reinterpret_cast<char*>(&number), sizeof number);) numbers.push_back(number);
  std::remove(path.c_str());
  return numbers;
}

void train_as_rank(Setup setup) {
  setup.batch_size = std::atoi(std::getenv("IVME_TEST_BATCH"));
  setup.accumulation = std::atoi(std::getenv("IVME_TEST_ACCUMULATION"));
  auto numbers = train(setup);
  if (std::string(std::getenv("RANK")) != "0") return;
  std::ofstream(std::getenv("IVME_TEST_OUT"), std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(double)));
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, size_t count, double bound) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_LE(count, a.size());
  double largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  EXPECT_LE(largest, bound);
}

// Runs one process with batch 256 and each cut of it; compares the first `count` numbers (0: all).
void expect_all_cuts_equal(const Setup& one, size_t count, double bound) {
  if (test::is_rank()) return train_as_rank(one);
  auto whole = train(one);
  struct Cut {
    int ranks;
    int64_t batch_size, accumulation;
  };
  for (const Cut& cut : {Cut{2, 128, 1}, Cut{4, 64, 1}, Cut{1, 64, 4}, Cut{2, 64, 2}}) {
    SCOPED_TRACE(std::to_string(cut.ranks) + " ranks x " + std::to_string(cut.batch_size) + " x " +
                 std::to_string(cut.accumulation));
    Setup setup = one;
    setup.batch_size = cut.batch_size;
    setup.accumulation = cut.accumulation;
    expect_near(whole, train_on(cut.ranks, setup), count ? count : whole.size(), bound);
  }
}

TEST(Equivalence, in_float64_all_cuts_of_a_batch_give_the_same_200_updates) {
  expect_all_cuts_equal({}, 0, 1e-9);
}

TEST(Equivalence, in_float64_adamw_too) { expect_all_cuts_equal({.adamw = true}, 0, 1e-9); }

TEST(Equivalence, in_float32_the_first_10_losses_agree_to_1e_6) {
  expect_all_cuts_equal({.dtype = at::kFloat, .updates = 20}, 10, 1e-6);
}

TEST(Equivalence, dropout_that_is_keyed_by_rows_is_the_same_on_all_ranks) {
  if (test::is_rank()) return train_as_rank({.updates = 40, .dropout = 0.3});
  auto whole = train({.updates = 40, .dropout = 0.3});
  for (int ranks : {2, 4})
    expect_near(whole, train_on(ranks, {.batch_size = 256 / ranks, .updates = 40, .dropout = 0.3}),
                whole.size(), 1e-9);
}

TEST(Equivalence, another_batch_is_another_training) {
  auto a = train({.updates = 20});
  auto b = train({.batch_size = 128, .updates = 20});
  EXPECT_GT(std::abs(a[10] - b[10]), 1e-3);
}

// 8 samples per update on 1, 2 and 4 ranks, seedable sampler, no dropout.
TEST(Equivalence, with_the_seedable_sampler_one_two_and_four_ranks_end_at_the_same_weights) {
  if (test::is_rank()) return train_as_rank({.dtype = at::kFloat, .updates = 32});
  auto one = train({.dtype = at::kFloat, .batch_size = 8, .updates = 32});
  for (int ranks : {2, 4})
    expect_near(one, train_on(ranks, {.dtype = at::kFloat, .batch_size = 8 / ranks, .updates = 32}),
                one.size(), 1e-6);
}

}  // namespace
}  // namespace ivme
