// Batches on xla have one shape: a short one is padded, and what is computed of it is what the CPU computes.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ivme/ivme.h"
#include "loop.h"
#include "message_of.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Tensor data_of(const std::vector<int64_t>& indices, at::ScalarType type) {
  auto data = at::empty({static_cast<int64_t>(indices.size()), 20}, type);
  for (size_t i = 0; i < indices.size(); ++i)
    data[static_cast<int64_t>(i)] = at::arange(20).add(static_cast<double>(indices[i])).sin();
  return data;
}

// Rows of numbers with their classes, or with a number each.
struct Classified {
  int64_t count;
  at::ScalarType type = at::kFloat;
  int64_t size() const { return count; }
  Batch get_batch(const std::vector<int64_t>& indices) const {
    return {data_of(indices, type), detail::tensor_of(indices).remainder(10)};
  }
};
struct Measured {
  int64_t count;
  int64_t size() const { return count; }
  Batch get_batch(const std::vector<int64_t>& indices) const {
    return {data_of(indices, at::kFloat), detail::tensor_of(indices).to(at::kFloat).cos().unsqueeze(1)};
  }
};

nn::Sequential make_mlp(int64_t outputs = 10) {
  at::manual_seed(1);
  return nn::Sequential(nn::Linear(20, 32), nn::ReLU(), nn::Linear(32, outputs));
}

struct Run {
  std::vector<double> losses;
  int64_t programs = 0, executions = 0;
};

template <class Dataset, class Loss>
Run train(AcceleratorOptions options, const Dataset& dataset, nn::Sequential net, Loss loss_of,
          int epochs = 3, int64_t batch_size = 8) {
  Accelerator accelerator(options);
  set_seed(2);
  auto [model, optimizer, loader] =
      accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}),
                          data_loader(dataset, {.batch_size = batch_size, .shuffle = true}));
  const auto before = xla::metrics();
  Run run;
  for (int e = 0; e < epochs; ++e)
    for (auto& batch : loader) {
      auto accumulating = accelerator.accumulate(model);
      auto loss = loss_of(model(batch.data), batch);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      run.losses.push_back(loss.template item<double>());
    }
  run.programs = xla::metrics().programs - before.programs;
  run.executions = xla::metrics().executions - before.executions;
  return run;
}

const auto cross_entropy = [](const Tensor& output, const Batch& batch) {
  return F::cross_entropy(output, batch.target);
};

template <class Dataset, class Loss>
void expect_the_losses_of_the_cpu(const Dataset& dataset, int64_t outputs, Loss loss_of,
                                  double tolerance = 1e-5, int64_t accumulation = 1) {
  auto make = [&] {
    auto net = make_mlp(outputs);
    if constexpr (requires { dataset.type; }) net->to(dataset.type);
    return net;
  };
  auto eager =
      train({.gradient_accumulation_steps = accumulation, .device = "cpu"}, dataset, make(), loss_of);
  auto traced =
      train({.gradient_accumulation_steps = accumulation, .device = "xla"}, dataset, make(), loss_of);
  EXPECT_EQ(eager.losses.size(), 3u * 13u);
  test::expect_close(traced.losses, eager.losses, tolerance);
  EXPECT_LE(traced.programs, accumulation > 1 ? 2 : 1);
  EXPECT_EQ(traced.executions, 3 * 13);
}

// 100 rows in batches of 8: the last has 4.
TEST(XlaBatches, epochs_with_a_short_last_batch_train_as_on_the_cpu) {
  expect_the_losses_of_the_cpu(Classified{100}, 10, cross_entropy);
  expect_the_losses_of_the_cpu(Classified{100, at::kDouble}, 10, cross_entropy, 1e-9);
}

TEST(XlaBatches, accumulation_over_a_short_last_batch_is_that_of_the_cpu) {
  expect_the_losses_of_the_cpu(Classified{100, at::kDouble}, 10, cross_entropy, 1e-9, 4);
}

TEST(XlaBatches, class_weights_and_smoothed_labels_leave_padding_out_as_well) {
  expect_the_losses_of_the_cpu(
      Classified{100, at::kDouble}, 10,
      [](const Tensor& output, const Batch& batch) {
        auto weight = at::arange(1, 11, output.options());
        return F::cross_entropy(output, batch.target, F::CrossEntropyFuncOptions().weight(weight));
      },
      1e-9);
  expect_the_losses_of_the_cpu(
      Classified{100, at::kDouble}, 10,
      [](const Tensor& output, const Batch& batch) {
        return F::cross_entropy(output, batch.target, F::CrossEntropyFuncOptions().label_smoothing(0.1));
      },
      1e-9);
}

TEST(XlaBatches, a_masked_mean_of_other_losses_is_that_of_the_cpu) {
  expect_the_losses_of_the_cpu(Measured{100}, 1, [](const Tensor& output, const Batch& batch) {
    return masked_mean(F::mse_loss(output, batch.target, F::MSELossFuncOptions(torch::kNone)), batch.mask);
  });
}

TEST(XlaBatches, the_mask_and_the_number_of_samples_are_there_on_every_device) {
  for (const char* device : {"cpu", "xla"}) {
    Accelerator accelerator({.device = device});
    auto loader = accelerator.prepare(data_loader(Classified{13}, {.batch_size = 5}));
    std::vector<std::vector<bool>> masks;
    std::vector<int64_t> samples;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.mask.device(), accelerator.device());
      EXPECT_TRUE(batch.mask.is_same(loader.mask()));
      Tensor mask = batch.mask.cpu();
      masks.emplace_back(mask.const_data_ptr<bool>(), mask.const_data_ptr<bool>() + mask.numel());
      samples.push_back(loader.samples());
      EXPECT_EQ(batch.data.size(0), mask.numel());
    }
    EXPECT_THAT(samples, ElementsAre(5, 5, 3));
    EXPECT_THAT(masks[1], ElementsAre(true, true, true, true, true));
    EXPECT_EQ(masks[2], device == std::string("cpu") ? std::vector<bool>({true, true, true})
                                                     : std::vector<bool>({true, true, true, false, false}));
    EXPECT_THAT(test::message_of([&] { loader.mask(); }), HasSubstr("inside a loop"));
  }
}

TEST(XlaBatches, padding_repeats_the_first_row_and_its_classes_are_ignored) {
  Accelerator accelerator({.device = "xla"});
  auto loader = accelerator.prepare(data_loader(Classified{13}, {.batch_size = 5}));
  Batch last;
  for (auto& batch : loader) last = batch;
  EXPECT_TRUE(at::equal(last.data.cpu(), data_of({10, 11, 12, 10, 10}, at::kFloat)));
  EXPECT_TRUE(at::equal(last.target.cpu(), at::tensor({0, 1, 2, -100, -100}, at::kLong)));
}

const auto mean_of_squares = [](const Tensor& output, const Batch& batch) {
  return F::mse_loss(output, batch.target);
};

TEST(XlaBatches, padding_that_would_count_is_an_error_before_the_update) {
  auto message =
      test::message_of([] { train({.device = "xla"}, Measured{100}, make_mlp(1), mean_of_squares); });
  EXPECT_THAT(message, HasSubstr("A batch of 4 samples was padded to 8 rows"));
  EXPECT_THAT(message, HasSubstr("ivme::masked_mean"));
  EXPECT_THAT(message, HasSubstr("drop_last"));
  EXPECT_THAT(message, HasSubstr("pad_last_batch"));
  train({.device = "xla"}, Measured{96}, make_mlp(1), mean_of_squares);  // none is short
}

TEST(XlaBatches, completing_from_the_epochs_start_can_be_asked_for) {
  auto run = train({.device = "xla", .sharing = {.pad_last_batch = false}}, Measured{100}, make_mlp(1),
                   mean_of_squares);
  EXPECT_LE(run.programs, 1);
  EXPECT_EQ(run.losses.size(), 3u * 13u);
}

// Sums of the outputs, row by row.
template <class Use>
double evaluate(const char* device, Use use) {
  Accelerator accelerator({.device = device});
  auto net = make_mlp(1);
  auto [model, loader] = accelerator.prepare(net, data_loader(Measured{100}, {.batch_size = 8}));
  at::NoGradGuard none;
  double sum = 0;
  for (auto& batch : loader) sum += use(accelerator, loader, model(batch.data));
  return sum;
}

TEST(XlaBatches, an_evaluation_gathers_samples_only_and_may_not_pass_over_padding) {
  auto gathered = [](Accelerator& accelerator, auto&, const Tensor& output) {
    return accelerator.gather_for_metrics(output).sum().item<double>();
  };
  const double expected = evaluate("cpu", gathered);
  EXPECT_NEAR(evaluate("xla", gathered), expected, 1e-4);
  auto masked = [](Accelerator&, auto& loader, const Tensor& output) {
    return (output.squeeze(1) * loader.mask()).sum().template item<double>();
  };
  EXPECT_NEAR(evaluate("xla", masked), expected, 1e-4);
  auto plain = [](Accelerator&, auto&, const Tensor& output) { return output.sum().item<double>(); };
  EXPECT_NEAR(evaluate("cpu", plain), expected, 1e-4);
  EXPECT_THAT(test::message_of([&] { evaluate("xla", plain); }),
              HasSubstr("A batch of 4 samples was padded"));
}

// A loader's last batch, made of its sample numbers.
template <class B>
struct Made {
  int64_t count;
  B (*make)(const Tensor& indices);
  int64_t size() const { return count; }
  B get_batch(const std::vector<int64_t>& indices) const { return make(detail::tensor_of(indices)); }
};
template <class B>
B last_padded(B (*make)(const Tensor& indices)) {
  Accelerator accelerator({.device = "xla"});
  auto loader = accelerator.prepare(data_loader(Made<B>{5, make}, {.batch_size = 4}));
  B last;
  for (auto& batch : loader) {
    last = batch;
    EXPECT_EQ(loader.mask().sum().template item<int64_t>(), loader.samples());
  }
  return last;
}
std::vector<int64_t> values(const Tensor& tensor) {
  Tensor here = tensor.cpu().to(at::kLong).contiguous();
  return {here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + here.numel()};
}

struct Labelled {
  Tensor ids, kinds;
};
void for_each_tensor(Labelled& batch, const TensorVisitor& visit) {
  visit(batch.ids);
  visit(batch.kinds);
}
void for_each_target(Labelled& batch, const TensorVisitor& visit) { visit(batch.kinds); }

TEST(XlaBatches, targets_are_found_in_pairs_maps_and_types_that_name_them_and_nothing_else_is_ignored) {
  auto ignored = ElementsAre(4, -100, -100, -100), repeated = ElementsAre(4, 4, 4, 4);
  auto pair = last_padded<std::pair<Tensor, Tensor>>([](const Tensor& i) { return std::pair(i, i); });
  EXPECT_THAT(values(pair.first), repeated);
  EXPECT_THAT(values(pair.second), ignored);
  using Three = std::tuple<Tensor, Tensor, Tensor>;
  auto three = last_padded<Three>([](const Tensor& i) { return Three(i, i, i); });
  EXPECT_THAT(values(std::get<1>(three)), repeated);
  EXPECT_THAT(values(std::get<2>(three)), repeated);
  using Map = std::map<std::string, Tensor>;
  auto map = last_padded<Map>([](const Tensor& i) { return Map{{"ids", i}, {"labels", i}}; });
  EXPECT_THAT(values(map["ids"]), repeated);
  EXPECT_THAT(values(map["labels"]), ignored);
  auto own = last_padded<Labelled>([](const Tensor& i) { return Labelled{i, i}; });
  EXPECT_THAT(values(own.ids), repeated);
  EXPECT_THAT(values(own.kinds), ignored);
  auto alone = last_padded<Tensor>([](const Tensor& i) { return i; });
  EXPECT_THAT(values(alone), repeated);
}

TEST(XlaBatches, a_target_for_each_token_is_padded_and_unsigned_ones_are_no_classes) {
  auto letters = last_padded<Batch>([](const Tensor& i) {
    auto rows = i.unsqueeze(1).expand({-1, 2});
    return Batch{rows, rows.to(at::kInt)};
  });
  EXPECT_THAT(values(letters.data), ElementsAre(4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(values(letters.target), ElementsAre(4, 4, -100, -100, -100, -100, -100, -100));
  auto bytes = last_padded<Batch>([](const Tensor& i) { return Batch{i, i.to(at::kByte)}; });
  EXPECT_THAT(values(bytes.target), ElementsAre(4, 4, 4, 4));
}

TEST(XlaBatches, batch_norm_in_training_completes_the_batch_instead_and_says_so_once) {
  auto make = [] {
    at::manual_seed(1);
    return nn::Sequential(nn::Linear(20, 32), nn::BatchNorm1d(32), nn::ReLU(), nn::Linear(32, 10));
  };
  testing::internal::CaptureStderr();
  auto run = train({.device = "xla"}, Classified{100}, make(), cross_entropy);
  train({.device = "xla"}, Classified{100}, make(), cross_entropy);
  std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("a batch of 4 samples was completed to 8 from the epoch's start");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("was completed to", first + 30), std::string::npos) << said;
  EXPECT_EQ(run.programs, 1);
  // Training is what it is where completing was asked for.
  auto asked =
      train({.device = "xla", .sharing = {.pad_last_batch = false}}, Classified{100}, make(), cross_entropy);
  EXPECT_EQ(run.losses, asked.losses);
}

TEST(XlaBatches, batch_norm_in_evaluation_is_padded) {
  Accelerator accelerator({.device = "xla"});
  auto [model, loader] =
      accelerator.prepare(nn::Sequential(nn::BatchNorm1d(20)), data_loader(Classified{5}, {.batch_size = 4}));
  for (bool training : {false, true}) {
    model->train(training);
    at::NoGradGuard none;
    Batch last;
    for (auto& batch : loader) last = batch, model(batch.data);
    EXPECT_THAT(values(last.target), training ? ElementsAre(4, 0, 1, 2) : ElementsAre(4, -100, -100, -100));
  }
}

// Padding lies behind the samples, so it moves none of their numbers.
TEST(XlaBatches, dropout_that_is_keyed_by_rows_is_that_of_xla) {
  auto losses = [](const char* device, at::ScalarType type) {
    at::manual_seed(1);
    nn::Sequential net(nn::Linear(20, 32), nn::Dropout(0.3), nn::ReLU(), nn::Dropout(0.1),
                       nn::Linear(32, 10));
    net->to(type);
    return train({.device = device, .row_keyed_dropout = true}, Classified{100, type}, net, cross_entropy)
        .losses;
  };
  test::expect_close(losses("xla", at::kDouble), losses("cpu", at::kDouble), 1e-9);
  test::expect_close(losses("xla", at::kFloat), losses("cpu", at::kFloat), 1e-5);
}

std::vector<nlohmann::json> steps_of_record(const char* device) {
  std::string path = ::testing::TempDir() + "batches_" + std::to_string(getpid()) + ".jsonl";
  train({.device = device, .record = path}, Classified{100}, make_mlp(), cross_entropy);
  std::ifstream file(path);
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(file, line);)
    if (auto json = nlohmann::json::parse(line); json["kind"] == "step") steps.push_back(json);
  std::remove(path.c_str());
  return steps;
}

TEST(XlaBatches, the_record_counts_samples_and_not_padding) {
  auto eager = steps_of_record("cpu"), traced = steps_of_record("xla");
  ASSERT_EQ(eager.size(), 3u * 13u);
  ASSERT_EQ(traced.size(), eager.size());
  EXPECT_EQ(traced[12]["samples"], 100);
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_EQ(traced[i]["samples"], eager[i]["samples"]);
    EXPECT_EQ(traced[i]["order"], eager[i]["order"]);
    for (const char* number : {"loss", "grad_norm"})
      EXPECT_NEAR(traced[i][number].get<double>(), eager[i][number].get<double>(),
                  1e-5 * eager[i][number].get<double>())
          << number << " of step " << i;
  }
}

}  // namespace
}  // namespace ivme
