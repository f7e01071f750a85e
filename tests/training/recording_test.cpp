#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ivme/schedule.h"
#include "ivme/seed.h"
#include "ranks.h"
#include "record/scratch_file.h"
#include "support/hash.h"
#include "training/loop.h"

namespace ivme {
namespace {

using record::ScratchFile;
using test::Ramp;
using test::Scale;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> lines(const std::string& text) {
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::vector<Json> parsed;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) parsed.push_back(Json::parse(line));
  return parsed;
}

std::vector<Json> of_kind(const std::vector<Json>& all, const std::string& kind) {
  std::vector<Json> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const Json& line) { return line["kind"] == kind; });
  return some;
}

template <class T>
std::vector<T> column(const std::vector<Json>& steps, const std::string& field) {
  std::vector<T> values;
  for (const Json& step : steps) values.push_back(step.at(field).get<T>());
  return values;
}

// The record of this test's body on several ranks, which must end well.
std::vector<Json> record_on_ranks(int ranks, const std::string& environment = "") {
  ScratchFile file;
  auto ended = test::run_on_ranks(ranks, "IVME_RECORD=" + file.path() + " " + environment);
  EXPECT_EQ(ended.code, 0) << ended.output;
  return lines(file.text());
}

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

// Trains y = w x towards 1 with learning rate 0.01; returns the updates made.
int train(Accelerator& accelerator, const LoaderOptions& options, int64_t samples, int epochs = 1) {
  Scale net;
  auto [model, optimizer, loader] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.01}),
                                                        data_loader(Ramp{samples}, options));
  int updates = 0;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& x : loader) {
      auto scope = accelerator.accumulate(model);
      accelerator.backward(at::mse_loss(model(x), at::ones_like(x)));
      optimizer.step();
      optimizer.zero_grad();
      updates += accelerator.sync_gradients();
    }
  return updates;
}

TEST(Record, facts_tell_what_was_set_up) {
  ScratchFile file;
  {
    set_seed(42);
    Accelerator accelerator({.gradient_accumulation_steps = 2, .record = file.path()});
    Scale net;
    optim::SGD sgd(net->parameters(), {.lr = 0.25, .momentum = 0.5});
    auto steps = optim::cosine_with_warmup(sgd, {.total_steps = 7});
    auto [model, optimizer, schedule, loader] =
        accelerator.prepare(net, sgd, steps, data_loader(Ramp{8}, {.batch_size = 4, .shuffle = true}));
    for (auto& x : loader) {
      auto scope = accelerator.accumulate(model);
      accelerator.backward(model(x).sum());
      optimizer.step();
      schedule.step();
    }
  }
  auto all = lines(file.text());
  ASSERT_FALSE(all.empty());
  const Json& facts = all[0];
  EXPECT_EQ(facts["kind"], "facts");
  EXPECT_EQ(facts["format"], 1);
  EXPECT_EQ(facts["seed"], 42);
  EXPECT_EQ(facts["device"], "cpu");
  EXPECT_EQ(facts["workers"], 1);
  EXPECT_EQ(facts["host_processes"], 1);
  EXPECT_EQ(facts["per_worker_batch"], 4);
  EXPECT_EQ(facts["split_batches"], false);
  EXPECT_EQ(facts["accumulation"], 2);
  EXPECT_EQ(facts["observed_batch"], 8);
  EXPECT_EQ(facts["optimizer"]["name"], "SGD");
  EXPECT_EQ(facts["optimizer"]["lr"], 0.25);
  EXPECT_EQ(facts["optimizer"]["momentum"], 0.5);
  EXPECT_EQ(facts["scheduler"],
            Json::parse(R"({"name":"cosine_with_warmup","total":7,"steps_per_update":1})"));
  EXPECT_EQ(facts["precision"], "no");
  EXPECT_EQ(facts["sampler"], "seedable");
  const std::vector<int64_t> order = {6, 3, 0, 7, 2, 1, 4, 5};
  Sha256 of_order, of_parameters;
  of_order.add(order.data(), order.size() * sizeof(int64_t));
  const float weight = 0;
  of_parameters.add(&weight, sizeof weight);
  EXPECT_EQ(facts["order"], of_order.hex16());
  EXPECT_EQ(facts["init"], of_parameters.hex16());
  EXPECT_EQ(facts["batch_norm"], false);
  EXPECT_EQ(facts["dropout"], false);
  EXPECT_TRUE(facts["versions"].contains("ivme") && facts["versions"].contains("torch"));
  EXPECT_THAT(facts["command"][0].get<std::string>(), HasSubstr("/"));
  EXPECT_TRUE(facts["environment"].is_object());
}

TEST(Record, facts_tell_of_batch_norm_and_of_dropout_that_is_active) {
  for (double p : {0.0, 0.5}) {
    ScratchFile file;
    {
      Accelerator accelerator({.record = file.path()});
      struct NetImpl : test::ScaleImpl {
        explicit NetImpl(double rate) {
          register_module("norm", torch::nn::BatchNorm1d(2));
          register_module("drop", torch::nn::Dropout(rate));
        }
      };
      auto net = std::make_shared<NetImpl>(p);
      auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters()));
      accelerator.backward(model(at::full({1}, 1.0)).sum());
      optimizer.step();
    }
    auto all = lines(file.text());
    EXPECT_EQ(all.at(0)["batch_norm"], true);
    EXPECT_EQ(all.at(0)["dropout"], p > 0);
    EXPECT_EQ(all.at(0)["sampler"], "none");
    EXPECT_FALSE(all.at(0).contains("per_worker_batch"));
  }
}

TEST(Record, a_step_has_the_mean_loss_the_norm_before_clipping_and_the_rate_it_used) {
  ScratchFile file;
  {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .record = file.path(), .record_micro = true});
    Scale net;
    optim::SGD sgd(net->parameters(), {.lr = 1});
    auto [model, optimizer, schedule, loader] = accelerator.prepare(
        net, sgd, optim::lambda(sgd, [](int64_t step) { return std::pow(0.5, step); }), data_loader(Ramp{4}));
    for (auto& x : loader) {
      auto scope = accelerator.accumulate(model);
      accelerator.backward(model(x).sum() + x.sum());
      accelerator.clip_grad_norm_(model, 0.5);
      optimizer.step();
      schedule.step();
      optimizer.zero_grad();
    }
    accelerator.log_final({{"accuracy", 0.75}});
  }
  auto all = lines(file.text());
  EXPECT_THAT(column<std::string>(all, "kind"),
              ElementsAre("facts", "micro", "micro", "step", "micro", "micro", "step", "final"));
  auto steps = of_kind(all, "step");
  EXPECT_THAT(column<int64_t>(steps, "step"), ElementsAre(1, 2));
  EXPECT_THAT(column<int64_t>(steps, "samples"), ElementsAre(2, 4));
  EXPECT_THAT(column<double>(steps, "lr"), ElementsAre(1, 0.5));
  EXPECT_THAT(column<double>(steps, "grad_norm"), ElementsAre(1.5, 3.5));
  EXPECT_EQ(steps[0]["loss"], 1.5);
  EXPECT_NEAR(steps[1]["loss"].get<double>(), 3.5 - 0.5 * 3.5, 1e-5);  // the weight is -0.5 by then
  EXPECT_NEAR(steps[0]["update_norm"].get<double>(), 0.5, 1e-5);
  EXPECT_NEAR(steps[0]["param_norm"].get<double>(), 0.5, 1e-5);
  EXPECT_FALSE(steps[0].contains("tokens"));
  EXPECT_GT(steps[0]["seconds"].get<double>(), 0);
  auto micro = of_kind(all, "micro");
  EXPECT_THAT(column<int64_t>(micro, "micro"), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(micro[0]["loss_ranks"], Json::array({"0x1p+0"}));
  EXPECT_EQ(micro[1]["loss_ranks"], Json::array({"0x1p+1"}));
  EXPECT_EQ(all.back()["metrics"]["accuracy"], 0.75);
  EXPECT_EQ(all.back()["complete"], true);
}

TEST(Record, norms_of_parameters_come_every_so_many_steps) {
  ScratchFile file;
  {
    Accelerator accelerator({.record = file.path(), .record_every = 3});
    train(accelerator, {}, 7);
  }
  std::vector<int64_t> with_norms;
  for (const Json& step : of_kind(lines(file.text()), "step")) {
    EXPECT_EQ(step.contains("param_norm"), step.contains("update_norm"));
    if (step.contains("param_norm")) with_norms.push_back(step["step"]);
  }
  EXPECT_THAT(with_norms, ElementsAre(1, 3, 6));
}

TEST(Record, steps_agree_however_their_samples_are_dealt_to_ranks_and_micro_batches) {
  if (test::is_rank()) {
    set_seed(42);
    Accelerator accelerator({.gradient_accumulation_steps = number_from("TEST_K", 1)});
    train(accelerator, {.batch_size = number_from("TEST_B", 1), .shuffle = true}, 32, 2);
    return;
  }
  auto whole = of_kind(record_on_ranks(1, "TEST_B=8"), "step");
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_THAT(column<int64_t>(whole, "samples"), ElementsAre(8, 16, 24, 32, 40, 48, 56, 64));
  EXPECT_NE(whole[0]["order"], whole[4]["order"]);
  auto halves = of_kind(record_on_ranks(2, "TEST_B=4"), "step");
  auto quarters = of_kind(record_on_ranks(2, "TEST_B=2 TEST_K=2"), "step");
  for (const auto& other : {halves, quarters}) {
    ASSERT_EQ(other.size(), whole.size());
    EXPECT_EQ(column<std::string>(other, "order"), column<std::string>(whole, "order"));
    EXPECT_EQ(column<int64_t>(other, "samples"), column<int64_t>(whole, "samples"));
    for (size_t i = 0; i < whole.size(); ++i)
      for (const char* field : {"loss", "grad_norm"}) {
        double expected = whole[i][field];
        EXPECT_NEAR(other[i][field].get<double>(), expected, 1e-5 * std::abs(expected)) << field << i;
      }
  }
}

TEST(Record, a_micro_line_has_every_ranks_loss_and_tokens_are_summed) {
  if (test::is_rank()) {
    Accelerator accelerator({.record_micro = true});
    Scale net;
    auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}));
    int rank = accelerator.process_index();
    accelerator.count_tokens(10 + rank);
    accelerator.backward(model(at::full({1}, 0.0)).sum() + 1 + 2 * rank);
    optimizer.step();
    accelerator.log_final({});
    return;
  }
  auto all = record_on_ranks(2);
  ASSERT_EQ(column<std::string>(all, "kind"), (std::vector<std::string>{"facts", "micro", "step", "final"}));
  EXPECT_EQ(all[0]["workers"], 2);
  EXPECT_EQ(all[1]["loss_ranks"], Json::array({"0x1p+0", "0x1.8p+1"}));
  EXPECT_EQ(all[2]["loss"], 2);
  EXPECT_EQ(all[2]["tokens"], 21);
}

TEST(Record, two_losses_of_one_micro_batch_are_summed_with_and_without_a_scope) {
  for (bool scoped : {false, true}) {
    ScratchFile file;
    {
      Accelerator accelerator({.record = file.path()});
      Scale net;
      auto [model, optimizer, loader] =
          accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}), data_loader(Ramp{2}));
      for (auto& x : loader) {
        auto scope = scoped ? accelerator.accumulate(model) : SyncScope(nullptr);
        accelerator.backward(model(x).sum() + 1);
        accelerator.backward(model(x).sum() * 0 + 2);
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    auto steps = of_kind(lines(file.text()), "step");
    EXPECT_THAT(column<double>(steps, "loss"), ElementsAre(3, 3 - 2));  // w is -1 and x is 2 in the second
    EXPECT_THAT(column<int64_t>(steps, "samples"), ElementsAre(1, 2));
  }
}

TEST(Record, two_optimizers_have_a_line_each_whether_they_share_the_loss_or_not) {
  for (bool shared : {false, true}) {
    ScratchFile file;
    {
      Accelerator accelerator({.record = file.path()});
      Scale a, b;
      auto [first, second, of_first, of_second, loader] =
          accelerator.prepare(a, b, optim::SGD(a->parameters(), {.lr = 1}),
                              optim::SGD(b->parameters(), {.lr = 2}), data_loader(Ramp{2}));
      for (auto& x : loader) {
        auto scope = accelerator.accumulate(first, second);
        accelerator.backward(first(x).sum() * 0 + 3);
        if (!shared) of_first.step();
        if (!shared) accelerator.backward(second(x).sum() * 0 + 5);
        if (shared) of_first.step();
        of_second.step();
      }
    }
    auto steps = of_kind(lines(file.text()), "step");
    EXPECT_THAT(column<int64_t>(steps, "optimizer"), ElementsAre(0, 1, 0, 1));
    EXPECT_THAT(column<int64_t>(steps, "step"), ElementsAre(1, 1, 2, 2));
    EXPECT_THAT(column<double>(steps, "lr"), ElementsAre(1, 2, 1, 2));
    EXPECT_THAT(column<int64_t>(steps, "samples"), ElementsAre(1, 1, 2, 2));
    double of_the_other = shared ? 3 : 5;
    EXPECT_THAT(column<double>(steps, "loss"), ElementsAre(3, of_the_other, 3, of_the_other));
  }
}

TEST(Record, numbers_that_are_not_finite_are_strings) {
  ScratchFile file;
  {
    Accelerator accelerator({.record = file.path()});
    Scale net;
    auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters()));
    accelerator.backward(model(at::full({1}, INFINITY)).sum());  // 0 * inf
    optimizer.step();
  }
  auto steps = of_kind(lines(file.text()), "step");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]["loss"], "nan");
  EXPECT_EQ(steps[0]["grad_norm"], "inf");
}

TEST(Record, the_option_wins_over_the_environment_and_without_both_there_is_none) {
  ScratchFile of_option, of_environment;
  setenv("IVME_RECORD", of_environment.path().c_str(), 1);
  for (bool in_code : {true, false}) {
    Accelerator accelerator(in_code ? AcceleratorOptions{.record = of_option.path()} : AcceleratorOptions{});
    train(accelerator, {}, in_code ? 2 : 3);
  }
  unsetenv("IVME_RECORD");
  EXPECT_EQ(of_kind(lines(of_option.text()), "step").size(), 2u);
  EXPECT_EQ(of_kind(lines(of_environment.text()), "step").size(), 3u);
}

TEST(Record, a_file_that_cannot_be_opened_is_an_error_at_the_start) {
  EXPECT_THAT(test::message_of([] { Accelerator({.record = "/no/such/folder/run.jsonl"}); }),
              HasSubstr("/no/such/folder"));
}

// Ranks that make 3 and 2 updates, each for itself.
TEST(Record, ranks_with_different_numbers_of_steps_do_not_wait_for_each_other) {
  if (test::is_rank()) {
    Accelerator accelerator({.sharing = {.even_batches = false}});
    Scale net;
    auto [optimizer, loader] =
        accelerator.prepare(optim::SGD(net->parameters(), {.lr = 1}), data_loader(Ramp{5}));
    for (auto& x : loader) {
      accelerator.backward(net(x).sum() * 0 + accelerator.process_index());
      optimizer.step();
    }
    accelerator.log_final({});
    return;
  }
  auto steps = of_kind(record_on_ranks(2), "step");
  EXPECT_THAT(column<double>(steps, "loss"), ElementsAre(0.5, 0.5, 0));
  EXPECT_THAT(column<int64_t>(steps, "samples"), ElementsAre(2, 4, 5));
}

TEST(Record, a_program_that_throws_leaves_whole_lines) {
  if (test::is_rank()) {
    Accelerator accelerator;
    train(accelerator, {}, 5 * accelerator.num_processes());
    if (accelerator.is_main_process()) throw std::runtime_error("thrown on purpose");
    return;
  }
  for (int ranks : {1, 2}) {
    ScratchFile file;
    auto ended = test::run_on_ranks(ranks, "IVME_RECORD=" + file.path());
    EXPECT_NE(ended.code, 0);
    EXPECT_THAT(ended.output, HasSubstr("thrown on purpose"));
    auto all = lines(file.text());
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all[0]["kind"], "facts");
    if (ranks == 1) {
      EXPECT_EQ(of_kind(all, "step").size(), 5u);
    }
    EXPECT_TRUE(of_kind(all, "final").empty());
  }
}

TEST(EndingEarly, a_probe_ends_after_one_step_and_max_steps_after_as_many) {
  if (test::is_rank()) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    train(accelerator, {.batch_size = 2}, 100);
    ADD_FAILURE() << "the program went on";
    return;
  }
  for (int ranks : {1, 2}) {
    auto probed = record_on_ranks(ranks, "IVME_PROBE=1");
    EXPECT_THAT(column<std::string>(probed, "kind"), ElementsAre("facts", "step"));
    auto steps = of_kind(record_on_ranks(ranks, "IVME_MAX_STEPS=3"), "step");
    EXPECT_THAT(column<int64_t>(steps, "samples"), ElementsAre(4 * ranks, 8 * ranks, 12 * ranks));
  }
}

TEST(EndingEarly, several_optimizers_are_all_let_finish) {
  if (test::is_rank()) {
    Accelerator accelerator;
    Scale a, b;
    auto [of_a, of_b] = accelerator.prepare(optim::SGD(a->parameters()), optim::SGD(b->parameters()));
    for (int i = 0; i < 10; ++i) {
      accelerator.backward((a(at::full({1}, 1.0)) + b(at::full({1}, 1.0))).sum());
      of_a.step();
      of_b.step();
    }
    ADD_FAILURE() << "the program went on";
    return;
  }
  auto steps = of_kind(record_on_ranks(1, "IVME_MAX_STEPS=2"), "step");
  EXPECT_THAT(column<int64_t>(steps, "optimizer"), ElementsAre(0, 1, 0, 1));
}

TEST(EndingEarly, a_number_of_steps_that_is_none_is_refused) {
  setenv("IVME_MAX_STEPS", "0", 1);
  EXPECT_THAT(test::message_of([] { Accelerator(); }), HasSubstr("IVME_MAX_STEPS=0"));
  unsetenv("IVME_MAX_STEPS");
}

}  // namespace
}  // namespace ivme
