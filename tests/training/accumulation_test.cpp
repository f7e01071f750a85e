#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ivme/seed.h"
#include "ranks.h"
#include "training/loop.h"

namespace ivme {
namespace {

using test::grad_of;
using test::message_of;
using test::Ramp;
using test::Scale;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

enum class ZeroGrad { before_backward, after_step };

// Weights after each micro-batch of x = 1, 2, ..., with loss w x and learning rate 1.
std::vector<double> weights_of_run(AcceleratorOptions options, int64_t samples, ZeroGrad where) {
  Accelerator accelerator(options);
  Scale net;
  auto [model, optimizer, loader] =
      accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}), data_loader(Ramp{samples}));
  std::vector<double> weights;
  for (auto& x : loader) {
    auto scope = accelerator.accumulate(model);
    if (where == ZeroGrad::before_backward) optimizer.zero_grad();
    accelerator.backward(model(x).sum());
    optimizer.step();
    if (where == ZeroGrad::after_step) optimizer.zero_grad();
    weights.push_back(net->weight());
  }
  return weights;
}

TEST(Accumulate, zero_grad_loses_no_gradient_wherever_it_stands) {
  for (ZeroGrad where : {ZeroGrad::before_backward, ZeroGrad::after_step})
    EXPECT_THAT(weights_of_run({.gradient_accumulation_steps = 2}, 4, where), ElementsAre(0, -1.5, -1.5, -5));
}

TEST(Accumulate, every_update_starts_from_fresh_gradients_without_accumulation_too) {
  for (ZeroGrad where : {ZeroGrad::before_backward, ZeroGrad::after_step})
    EXPECT_THAT(weights_of_run({}, 3, where), ElementsAre(-1, -3, -6));
}

TEST(Accumulate, a_short_last_group_is_divided_by_n_and_updates) {
  EXPECT_THAT(weights_of_run({.gradient_accumulation_steps = 2}, 5, ZeroGrad::after_step),
              ElementsAre(0, -1.5, -1.5, -5, -7.5));
}

// Which micro-batches end in an update, in two epochs of three.
std::vector<bool> updates_in_two_epochs(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  auto loader = accelerator.prepare(data_loader(Ramp{3}));
  std::vector<bool> updates;
  for (int epoch = 0; epoch < 2; ++epoch)
    for ([[maybe_unused]] auto& x : loader) {
      auto scope = accelerator.accumulate();
      updates.push_back(accelerator.sync_gradients());
    }
  return updates;
}

TEST(Accumulate, groups_of_micro_batches_do_not_cross_an_epochs_end) {
  EXPECT_THAT(updates_in_two_epochs({.gradient_accumulation_steps = 2}),
              ElementsAre(false, true, true, false, true, true));
}

TEST(Accumulate, groups_cross_an_epochs_end_without_sync_with_dataloader) {
  EXPECT_THAT(updates_in_two_epochs({.gradient_accumulation_steps = 2, .sync_with_dataloader = false}),
              ElementsAre(false, true, false, true, false, true));
}

TEST(Accumulate, micro_loops_inside_a_batch_update_every_nth_time_without_sync_with_dataloader) {
  for (bool sync : {false, true}) {
    Accelerator accelerator({.gradient_accumulation_steps = 4, .sync_with_dataloader = sync});
    auto loader = accelerator.prepare(data_loader(Ramp{2}));
    int updates = 0;
    for (auto& x : loader) {
      (void)x;
      for (int micro = 0; micro < 4; ++micro) {
        auto scope = accelerator.accumulate();
        updates += accelerator.sync_gradients();
      }
    }
    EXPECT_EQ(updates, sync ? 5 : 2);
  }
}

TEST(Accumulate, a_loop_without_a_loader_updates_every_nth_time) {
  Accelerator accelerator({.gradient_accumulation_steps = 3});
  int updates = 0;
  for (int i = 0; i < 7; ++i) {
    auto scope = accelerator.accumulate();
    updates += accelerator.sync_gradients();
  }
  EXPECT_EQ(updates, 2);
}

TEST(Backward, the_loss_is_divided_by_n_even_outside_of_accumulate) {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  Scale net;
  auto model = accelerator.prepare(net);
  accelerator.backward(model(at::full({1}, 6.0)).sum());
  EXPECT_EQ(grad_of(net->w), 1.5);
}

TEST(Backward, a_loss_that_is_no_scalar_takes_a_gradient_and_a_graph_may_be_kept) {
  Accelerator accelerator;
  Scale net;
  auto model = accelerator.prepare(net);
  at::Tensor out = model(at::tensor({2.0, 3.0}));
  accelerator.backward(out, {.gradient = at::tensor({1.0, 10.0}), .retain_graph = true});
  EXPECT_EQ(grad_of(net->w), 32);
  accelerator.backward(out, {.gradient = at::tensor({1.0, 0.0})});
  EXPECT_EQ(grad_of(net->w), 34);
}

TEST(Accumulate, one_large_batch_and_two_small_ones_train_alike) {
  std::vector<at::Tensor> weights;
  for (int64_t n : {1, 2}) {
    set_seed(3);
    Accelerator accelerator({.gradient_accumulation_steps = n});
    torch::nn::Linear net(4, 3);
    at::Tensor data = at::randn({80, 4});
    auto [model, optimizer] =
        accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1, .momentum = 0.9}));
    for (const at::Tensor& batch : data.split(8 / n)) {
      auto scope = accelerator.accumulate(model);
      accelerator.backward(model(batch).square().mean());
      optimizer.step();
      optimizer.zero_grad();
    }
    weights.push_back(net->weight.detach().clone());
  }
  EXPECT_LT((weights[0] - weights[1]).abs().max().item<double>(), 1e-6);
}

TEST(Accumulate, a_sum_loss_scaled_by_n_over_all_tokens_is_the_token_mean) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale net;
  auto model = accelerator.prepare(net);
  // Two micro-batches of 1 and 3 tokens whose losses sum to 2 w and 3 w.
  const double total_tokens = 4;
  for (double sum : {2.0, 3.0}) {
    auto scope = accelerator.accumulate(model);
    accelerator.backward(model(at::full({1}, sum)).sum() * 2 * accelerator.num_processes() / total_tokens);
  }
  EXPECT_DOUBLE_EQ(grad_of(net->w), 1.25);  // the mean of means would be 1.5
}

RANKS_TEST(2, Accumulate, token_means_over_ranks_and_micro_batches_equal_one_process) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale net;
  auto model = accelerator.prepare(net);
  const std::vector<std::vector<double>> tokens = {{0.3}, {1.7, 2.5, -4}, {8, 0.5}, {3, 3.5, 0.25, 7}};
  double sum = 0, total = 0;
  for (const auto& micro_batch : tokens)
    for (double token : micro_batch) sum += token, ++total;
  for (int micro = 0; micro < 2; ++micro) {
    auto scope = accelerator.accumulate(model);
    at::Tensor mine = at::tensor(tokens[2 * accelerator.process_index() + micro], at::kFloat);
    accelerator.backward(model(mine).sum() * 2 * accelerator.num_processes() / total);
  }
  EXPECT_NEAR(grad_of(net->w), sum / total, 1e-6);
}

RANKS_TEST(2, Accumulate, ranks_agree_at_every_update_and_go_their_own_way_between) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale net;
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}));
  double rank = accelerator.process_index();
  std::vector<double> gradients;
  for (int micro = 0; micro < 6; ++micro) {
    auto scope = accelerator.accumulate(model);
    optimizer.zero_grad();
    accelerator.backward(model(at::full({1}, micro + 10 * rank)).sum());
    gradients.push_back(grad_of(net->w));
    optimizer.step();
  }
  // (micro + micro' + 20 rank) / 2 on each rank, averaged: the rank's 10 becomes 5.
  EXPECT_THAT(gradients, ElementsAre(5 * rank, 0.5 + 5, 1 + 5 * rank, 2.5 + 5, 2 + 5 * rank, 4.5 + 5));
  EXPECT_DOUBLE_EQ(net->weight(), -(5.5 + 7.5 + 9.5));
}

RANKS_TEST(2, NoSync, gradients_stay_local_inside_and_are_reduced_after) {
  Accelerator accelerator;
  Scale net;
  auto model = accelerator.prepare(net);
  double rank = accelerator.process_index();
  {
    auto scope = accelerator.no_sync(model);
    accelerator.backward(model(at::full({1}, 1 + rank)).sum());
    EXPECT_EQ(grad_of(net->w), 1 + rank);
  }
  accelerator.backward(model(at::full({1}, 10.0)).sum());
  EXPECT_EQ(grad_of(net->w), 11.5);
}

RANKS_TEST(2, Accumulate, two_models_and_two_optimizers_are_averaged_each) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale a, b;
  auto [first, second, of_first, of_second] = accelerator.prepare(
      a, b, optim::SGD(a->parameters(), {.lr = 1}), optim::SGD(b->parameters(), {.lr = 1}));
  double rank = accelerator.process_index();
  for (int micro = 0; micro < 4; ++micro) {
    auto scope = accelerator.accumulate(first, second);
    of_first.zero_grad();
    of_second.zero_grad();
    accelerator.backward(first(at::full({1}, 2 * rank)).sum() + second(at::full({1}, 6 * rank)).sum());
    of_first.step();
    of_second.step();
  }
  EXPECT_EQ(a->weight(), -2);
  EXPECT_EQ(b->weight(), -6);
}

// Two players, each with its own loss in every micro-batch; the second player's loss reaches the first one's
// weight.
TEST(Accumulate, players_with_losses_of_their_own_start_each_update_from_fresh_gradients) {
  for (int64_t n : {1, 2}) {
    Accelerator accelerator({.gradient_accumulation_steps = n});
    Scale critic, generator;
    auto [d, g, of_d, of_g] =
        accelerator.prepare(critic, generator, optim::SGD(critic->parameters(), {.lr = 1}),
                            optim::SGD(generator->parameters(), {.lr = 1}));
    at::Tensor one = at::ones({1});
    for (int micro = 0; micro < 2 * n; ++micro) {
      auto scope = accelerator.accumulate(d, g);
      of_d.zero_grad();
      accelerator.backward(d(one).sum());
      of_d.step();
      of_g.zero_grad();
      accelerator.backward(g(one).sum() + (n == 1 ? d(one).sum() : at::zeros({})));
      of_g.step();
    }
    EXPECT_EQ(critic->weight(), -2) << n;
    EXPECT_EQ(generator->weight(), -2) << n;
  }
}

TEST(Accumulate, gradients_that_follow_an_update_do_not_leak_into_the_next_group) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale net;
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}));
  for (int micro = 0; micro < 4; ++micro) {
    auto scope = accelerator.accumulate(model);
    optimizer.zero_grad();
    accelerator.backward(model(at::ones({1})).sum());
    optimizer.step();
    if (accelerator.sync_gradients())
      accelerator.backward(model(at::full({1}, 100.0)).sum());  // another's loss
  }
  EXPECT_EQ(net->weight(), -2);
}

TEST(ClipGradNorm, scales_to_the_norm_and_returns_the_one_before) {
  Accelerator accelerator;
  torch::nn::Linear net(torch::nn::LinearOptions(2, 1).bias(false));
  auto model = accelerator.prepare(net);
  auto give = [&] { net->weight.mutable_grad() = at::tensor({3.0f, 4.0f}).unsqueeze(0); };
  give();
  EXPECT_EQ(accelerator.clip_grad_norm_(model, 1.0).item<double>(), 5);
  EXPECT_NEAR(net->weight.grad()[0][0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(net->weight.grad()[0][1].item<double>(), 0.8, 1e-6);
  give();
  EXPECT_EQ(accelerator.clip_grad_norm_(net->parameters(), 10.0).item<double>(), 5);
  EXPECT_EQ(net->weight.grad()[0][1].item<double>(), 4);
  EXPECT_EQ(accelerator.clip_grad_norm_(net, 3.5, 1.0).item<double>(), 7);
  EXPECT_NEAR(net->weight.grad()[0][0].item<double>(), 1.5, 1e-6);
  give();
  EXPECT_EQ(accelerator.clip_grad_norm_(model, 2.0, INFINITY).item<double>(), 4);
  EXPECT_NEAR(net->weight.grad()[0][0].item<double>(), 1.5, 1e-6);
}

TEST(ClipGradNorm, does_nothing_on_a_micro_batch_without_an_update_but_tells_the_norm) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scale net;
  auto model = accelerator.prepare(net);
  std::vector<double> norms, gradients;
  for (int micro = 0; micro < 2; ++micro) {
    auto scope = accelerator.accumulate(model);
    accelerator.backward(model(at::full({1}, 8.0)).sum());
    norms.push_back(accelerator.clip_grad_norm_(model, 1.0).item<double>());
    gradients.push_back(grad_of(net->w));
  }
  EXPECT_THAT(norms, ElementsAre(4, 8));
  EXPECT_THAT(gradients, ElementsAre(4, DoubleNear(1, 1e-6)));
}

RANKS_TEST(2, ClipGradNorm, sees_the_gradients_of_all_ranks) {
  Accelerator accelerator;
  Scale net;
  auto model = accelerator.prepare(net);
  accelerator.backward(model(at::full({1}, accelerator.is_main_process() ? 2.0 : 10.0)).sum());
  EXPECT_EQ(accelerator.clip_grad_norm_(model, 1.0).item<double>(), 6);
  EXPECT_NEAR(grad_of(net->w), 1, 1e-6);
}

TEST(ClipGradValue, cuts_each_element_on_micro_batches_that_update) {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
  auto model = accelerator.prepare(net);
  std::vector<double> sums;
  for (int micro = 0; micro < 2; ++micro) {
    auto scope = accelerator.accumulate(model);
    net->weight.mutable_grad() = at::tensor({-7.0f, 0.25f, 9.0f}).unsqueeze(0);
    accelerator.clip_grad_value_(model, 0.5);
    sums.push_back(grad_of(net->weight));
  }
  EXPECT_THAT(sums, ElementsAre(2.25, 0.25));
  EXPECT_EQ(net->weight.grad()[0][0].item<double>(), -0.5);
}

TEST(MixedPrecision, a_prepared_forward_computes_in_bf16_and_gives_float32_out) {
  Accelerator accelerator({.mixed_precision = Precision::bf16});
  torch::nn::Linear net(64, 8);
  auto model = accelerator.prepare(net);
  at::Tensor x = at::randn({4, 64});
  at::Tensor out = model(x);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  EXPECT_EQ(net->weight.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::equal(out, net(x)));
  EXPECT_TRUE(at::equal(out, out.to(at::kBFloat16).to(at::kFloat)));  // every value is one of bf16's
  accelerator.backward(out.sum());
  EXPECT_EQ(net->weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(net(x).scalar_type(), at::kFloat);
  {
    auto scope = accelerator.autocast();
    EXPECT_EQ(net(x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(net(x).scalar_type(), at::kFloat);
}

TEST(MixedPrecision, fp16_is_refused_with_a_sentence) {
  EXPECT_THAT(message_of([] { Accelerator({.mixed_precision = Precision::fp16}); }), HasSubstr("Use bf16"));
}

struct Environment {
  Environment(const char* n, const char* value) : name(n) { setenv(n, value, 1); }
  ~Environment() { unsetenv(name); }
  const char* name;
};

TEST(Options, what_the_code_says_wins_over_the_environment_and_the_conflict_is_told_once) {
  Environment steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "8"),
      precision("ACCELERATE_MIXED_PRECISION", "bf16");
  EXPECT_EQ(Accelerator().gradient_accumulation_steps(), 8);
  EXPECT_EQ(Accelerator().mixed_precision(), Precision::bf16);
  testing::internal::CaptureStderr();
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(Accelerator({.gradient_accumulation_steps = 2}).gradient_accumulation_steps(), 2);
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("ACCELERATE_GRADIENT_ACCUMULATION_STEPS=8"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(Options, impossible_values_are_refused_with_a_sentence) {
  EXPECT_THAT(message_of([] { Accelerator({.gradient_accumulation_steps = 0}); }), HasSubstr("is 0"));
  EXPECT_THAT(message_of([] { Accelerator({.record_every = 0}); }), HasSubstr("record_every"));
  EXPECT_THAT(message_of([] { Accelerator({.data_parallel = {.bucket_cap_mb = 0}}); }),
              HasSubstr("bucket_cap_mb"));
  EXPECT_THAT(message_of([] { Accelerator({.device = "cdua"}); }),
              testing::AllOf(HasSubstr("cdua"), HasSubstr("cuda")));
  EXPECT_THAT(message_of([] { Accelerator({.device = "tpu"}); }), HasSubstr("tpu"));
  Environment precision("ACCELERATE_MIXED_PRECISION", "bf61");
  EXPECT_THAT(message_of([] { Accelerator(); }),
              testing::AllOf(HasSubstr("bf61"), HasSubstr("did you mean 'bf16'")));
}

TEST(Options, a_number_in_the_environment_that_is_none_is_refused) {
  Environment steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "two");
  EXPECT_THAT(message_of([] { Accelerator(); }), HasSubstr("ACCELERATE_GRADIENT_ACCUMULATION_STEPS=two"));
}

TEST(SetSeed, every_generator_starts_again) {
  auto draw = [] {
    set_seed(5);
    return std::tuple{std::rand(), random_engine()(), at::rand({4})};
  };
  auto [c, engine, torch_] = draw();
  auto [c2, engine2, torch2] = draw();
  EXPECT_EQ(c, c2);
  EXPECT_EQ(engine, engine2);
  EXPECT_TRUE(at::equal(torch_, torch2));
  set_seed(6);
  EXPECT_NE(random_engine()(), engine);
  EXPECT_FALSE(at::equal(at::rand({4}), torch_));
}

TEST(SetSeed, can_ask_for_deterministic_algorithms) {
  bool before = at::globalContext().deterministicAlgorithms();
  set_seed(5, {.deterministic = true});
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(before, false);
}

RANKS_TEST(2, SetSeed, ranks_draw_the_same_unless_it_is_device_specific) {
  Accelerator accelerator;
  auto differs_between_ranks = [&](bool device_specific) {
    set_seed(5, {.device_specific = device_specific});
    at::Tensor all = accelerator.gather(at::dropout(at::ones({64}), 0.5, true));
    return !at::equal(all.slice(0, 0, 64), all.slice(0, 64));
  };
  EXPECT_FALSE(differs_between_ranks(false));
  EXPECT_TRUE(differs_between_ranks(true));
}

RANKS_TEST(1, SetSeed, a_device_specific_seed_needs_an_accelerator_first) {
  EXPECT_THAT(message_of([] { set_seed(5, {.device_specific = true}); }),
              HasSubstr("Create the Accelerator first"));
  Accelerator accelerator;
  EXPECT_NO_THROW(set_seed(5, {.device_specific = true}));
}

}  // namespace
}  // namespace ivme
