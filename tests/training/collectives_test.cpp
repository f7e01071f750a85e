// Collectives on real ranks, and what happens when ranks do not fit together.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "ivme/ivme.h"
#include "ranks.h"

namespace ivme {
namespace {

using namespace std::chrono_literals;
namespace nn = torch::nn;
using ::testing::Test;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message << "\nexpected in it: " << part;
}

RANKS_TEST(2, Collectives, gather_joins_in_the_order_of_ranks) {
  Accelerator accelerator;
  int rank = accelerator.process_index();
  auto rows = accelerator.gather(at::full({2, 3}, rank));
  EXPECT_EQ(rows.sizes(), at::IntArrayRef({4, 3}));
  EXPECT_TRUE(rows[1].eq(0).all().item<bool>() && rows[2].eq(1).all().item<bool>());
  EXPECT_TRUE(accelerator.gather(at::tensor(rank)).equal(at::tensor({0, 1})));
  EXPECT_TRUE(accelerator.gather(at::full({2}, rank).to(at::kBFloat16))
                  .equal(at::tensor({0, 0, 1, 1}).to(at::kBFloat16)));
  auto nested =
      accelerator.gather(std::pair(at::full({1}, rank), std::vector<at::Tensor>{at::full({1}, 10 + rank)}));
  EXPECT_TRUE(nested.second[0].equal(at::tensor({10, 11})));
  EXPECT_EQ(accelerator.gather(at::empty({0, 2})).sizes(), at::IntArrayRef({0, 2}));
}

RANKS_TEST(2, Collectives, gather_takes_non_contiguous_and_differentiable_tensors) {
  Accelerator accelerator;
  auto matrix = at::arange(6).view({2, 3}).t();
  EXPECT_TRUE(accelerator.gather(matrix).slice(0, 3).equal(matrix));
  auto loss = at::ones({2}).requires_grad_().mul(2);
  EXPECT_FALSE(accelerator.gather(loss).requires_grad());
}

RANKS_TEST(2, Collectives, reduce_sums_averages_and_takes_the_maximum_without_changing_its_input) {
  Accelerator accelerator;
  auto mine = at::tensor({1.0 + accelerator.process_index(), 5.0});
  EXPECT_TRUE(accelerator.reduce(mine).equal(at::tensor({3.0, 10.0})));
  EXPECT_TRUE(accelerator.reduce(mine, Reduction::mean).equal(at::tensor({1.5, 5.0})));
  EXPECT_TRUE(accelerator.reduce(mine, Reduction::max).equal(at::tensor({2.0, 5.0})));
  EXPECT_EQ(mine[0].item<double>(), 1.0 + accelerator.process_index());
}

RANKS_TEST(2, Collectives, gathering_different_shapes_throws_on_every_rank_and_lists_all_shapes) {
  Accelerator accelerator;
  auto mine = at::zeros({2, accelerator.process_index() == 0 ? 3 : 5});
  auto message = message_of([&] { accelerator.gather(mine); });
  expect_says(message, "Process 0: [2, 3]");
  expect_says(message, "Process 1: [2, 5]");
  expect_says(message, "pad_across_processes");
  EXPECT_EQ(accelerator.gather(accelerator.pad_across_processes(mine, 1, -100)).sizes(),
            at::IntArrayRef({4, 5}));
}

RANKS_TEST(2, Collectives, padding_fills_behind_or_before) {
  Accelerator accelerator;
  auto mine = at::ones({accelerator.process_index() + 1, 2});
  auto behind = accelerator.pad_across_processes(mine, 0, -1);
  auto before = accelerator.pad_across_processes(mine, 0, -1, true);
  EXPECT_EQ(behind.size(0), 2);
  if (accelerator.process_index() == 0) {
    EXPECT_TRUE(behind[1].eq(-1).all().item<bool>());
    EXPECT_TRUE(before[0].eq(-1).all().item<bool>());
  }
}

RANKS_TEST(2, Collectives, different_dtypes_throw_on_every_rank) {
  Accelerator accelerator;
  auto mine = at::zeros({2}, accelerator.process_index() == 0 ? at::kFloat : at::kLong);
  auto message = message_of([&] { accelerator.reduce(mine); });
  expect_says(message, "Float");
  expect_says(message, "Long");
}

RANKS_TEST(2, Collectives, ranks_in_different_calls_are_told_so) {
  Accelerator accelerator;
  auto mine = at::zeros({2});
  auto message = message_of(
      [&] { accelerator.process_index() == 0 ? accelerator.gather(mine) : accelerator.reduce(mine); });
  expect_says(message, "Process 0: gather");
  expect_says(message, "Process 1: reduce");
}

RANKS_TEST(3, Collectives, strings_of_any_length_are_gathered) {
  Accelerator accelerator;
  int rank = accelerator.process_index();
  std::vector<std::string> mine(rank, std::string(rank * 1000, 'a' + rank));
  auto all = accelerator.gather_object(mine);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], std::string(1000, 'b'));
  EXPECT_EQ(all[2], std::string(2000, 'c'));
}

RANKS_TEST(2, Collectives, a_barrier_that_a_rank_never_reaches_names_the_call_and_the_rank) {
  Accelerator accelerator({.timeout = 2s});
  accelerator.wait_for_everyone();
  if (!accelerator.is_main_process()) {
    std::this_thread::sleep_for(3s);
    return;
  }
  auto start = std::chrono::steady_clock::now();
  auto message = message_of([&] { accelerator.wait_for_everyone("the save_state barrier"); });
  expect_says(message, "the save_state barrier");
  expect_says(message, "rank 1 did not come");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
}

RANKS_TEST(3, Collectives, a_collective_that_a_rank_never_joins_names_it) {
  Accelerator accelerator({.timeout = 2s});
  if (accelerator.process_index() == 1) {
    std::this_thread::sleep_for(5s);
    return;
  }
  auto message = message_of([&] { accelerator.gather(at::zeros({1})); });
  expect_says(message, "gather");
  expect_says(message, "missing: rank 1");
}

TEST(Collectives, a_rank_killed_in_mid_step_ends_the_run_and_is_named) {
  if (test::is_rank()) {
    Accelerator accelerator;
    nn::Linear net(256, 256);
    auto model = accelerator.prepare(net);
    for (int step = 0; step < 100000; ++step) {
      if (step == 20 && accelerator.process_index() == 1) std::raise(SIGKILL);
      accelerator.backward(model(at::ones({8, 256})).sum());
      net->zero_grad();
    }
    return;
  }
  auto start = std::chrono::steady_clock::now();
  auto ended = test::run_on_ranks(2);
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.output;
  expect_says(ended.output, "rank 1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(Collectives, a_world_that_never_comes_together_is_an_error_with_the_address) {
  if (test::is_rank()) GTEST_FAIL() << "not for ranks";
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_PORT", "1", 1);
  auto message = message_of([] { Accelerator accelerator({.device = "cpu", .timeout = 1s}); });
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) unsetenv(name);
  expect_says(message, "127.0.0.1:1");
  expect_says(message, "ivme launch");
}

RANKS_TEST(2, DataParallel, gradients_are_the_mean_of_the_ranks_with_every_option) {
  for (bool unused : {false, true})
    for (bool view : {false, true}) {
      Accelerator accelerator(
          {.data_parallel = {.find_unused_parameters = unused, .gradient_as_bucket_view = view}});
      int rank = accelerator.process_index();
      at::manual_seed(rank);  // prepare makes rank 0's weights everybody's
      nn::Linear net(4, 3);
      auto optimizer = accelerator.prepare(optim::SGD(net->parameters(), {.lr = 0.1}));
      auto model = accelerator.prepare(net);
      for (int step = 0; step < 3; ++step) {
        auto all = at::arange(8.0).view({2, 4}) + step;
        accelerator.backward(model(all[rank]).sum());
        EXPECT_TRUE(net->weight.grad().allclose((all[0] + all[1]).div(2).expand({3, 4})))
            << unused << view << step;
        optimizer.step();
        optimizer.zero_grad();
      }
      EXPECT_TRUE(
          accelerator.gather(net->weight.detach().unsqueeze(0)).diff(1, 0).abs().max().item<double>() == 0);
    }
}

// d loss / d w is the input.
struct ProductImpl : nn::Module {
  explicit ProductImpl(const at::Tensor& like) { w = register_parameter("w", at::zeros_like(like)); }
  at::Tensor forward(const at::Tensor& x) { return (w * x).sum(); }
  at::Tensor w;
};
TORCH_MODULE(Product);

// DistributedDataParallel's definition: each rank's gradient times 1 / P, then Gloo's sum.
void expect_the_bits_of_gloo(at::ScalarType dtype) {
  Accelerator accelerator;
  int ranks = accelerator.num_processes();
  for (int64_t count :
       {1, 2, 7, 1000, 65537, 300001, 2000003}) {  // on 3 ranks, the last needs more than two segments
    at::manual_seed(accelerator.process_index());
    auto x = at::randn({count}, dtype);
    Product net(x);
    auto model = accelerator.prepare(net);
    accelerator.backward(model(x));
    EXPECT_TRUE(net->w.grad().equal(accelerator.reduce(x * (1.0 / ranks))))
        << count << " values, " << ranks << " ranks";
  }
}

RANKS_TEST(2, DataParallel, two_ranks_average_gradients_to_the_bits_of_gloo) {
  expect_the_bits_of_gloo(at::kFloat);
}
RANKS_TEST(3, DataParallel, three_ranks_average_gradients_to_the_bits_of_gloo) {
  expect_the_bits_of_gloo(at::kFloat);
}
RANKS_TEST(4, DataParallel, four_ranks_average_gradients_to_the_bits_of_gloo) {
  expect_the_bits_of_gloo(at::kDouble);
}

struct TwoHeadsImpl : nn::Module {
  TwoHeadsImpl() {
    trunk = register_module("trunk", nn::Linear(2, 2));
    a = register_module("a", nn::Linear(2, 1));
    b = register_module("b", nn::Linear(2, 1));
  }
  std::pair<at::Tensor, std::optional<at::Tensor>> forward(at::Tensor x, bool with_b) {
    x = trunk(x);
    return {a(x), with_b ? std::optional(b(x)) : std::nullopt};
  }
  nn::Linear trunk{nullptr}, a{nullptr}, b{nullptr};
};
TORCH_MODULE(TwoHeads);

RANKS_TEST(2, DataParallel, parameters_that_a_forward_leaves_out_are_found) {
  Accelerator accelerator({.data_parallel = {.find_unused_parameters = true}});
  TwoHeads net;
  auto model = accelerator.prepare(net);
  for (int step = 0; step < 4; ++step) {
    auto [first, second] = model(at::ones({1, 2}), step % 2 == 1);
    accelerator.backward(first.sum());  // the second output, when there is one, is not in the loss either
    EXPECT_TRUE(net->trunk->weight.grad().defined());
    net->zero_grad(true);
  }
}

RANKS_TEST(2, DataParallel, buffers_follow_rank_0) {
  Accelerator accelerator;
  nn::BatchNorm1d norm(2);
  auto model = accelerator.prepare(norm);
  for (int step = 0; step < 2; ++step)
    accelerator.backward(model(at::randn({4, 2}).add(10.0 * accelerator.process_index())).sum());
  model(at::zeros({4, 2}));  // the broadcast stands before a forward
  norm->eval();
  auto mean = norm->running_mean.clone();
  EXPECT_LT(mean.abs().max().item<double>(), 5);
}

RANKS_TEST(2, DataParallel, no_sync_keeps_gradients_local_until_the_next_synchronised_backward) {
  Accelerator accelerator;
  int rank = accelerator.process_index();
  nn::Linear net(nn::LinearOptions(1, 1).bias(false));
  auto model = accelerator.prepare(net);
  auto x = at::full({1, 1}, 1.0 + rank);
  {
    auto local = accelerator.no_sync(model);
    accelerator.backward(model(x).sum());
  }
  EXPECT_EQ(net->weight.grad().item<double>(), 1.0 + rank);
  accelerator.backward(model(x).sum());
  EXPECT_EQ(net->weight.grad().item<double>(), 3.0);  // mean of 2 and 4
}

RANKS_TEST(2, DataParallel, training_lowers_the_loss_and_equals_the_serial_run) {
  auto serial_weight = at::zeros({1, 1});
  auto x = at::tensor({1.0f, 2.0f}), y = x * 3;
  for (int step = 0; step < 20; ++step) {
    auto gradient = (2 * (serial_weight * x - y) * x).mean();
    serial_weight = serial_weight - 0.1 * gradient;
  }
  Accelerator accelerator;
  nn::Linear net(nn::LinearOptions(1, 1).bias(false));
  net->weight.detach().zero_();
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1}));
  double first = 0, last = 0;
  int rank = accelerator.process_index();
  for (int step = 0; step < 20; ++step) {
    auto loss = (model(x.narrow(0, rank, 1).view({1, 1})) - y[rank]).pow(2).mean();
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 100);
  EXPECT_NEAR(net->weight.item<double>(), serial_weight.item<double>(), 1e-6);
}

RANKS_TEST(2, DataParallel, models_that_differ_between_ranks_are_refused) {
  Accelerator accelerator({.timeout = 5s});
  nn::Linear net(accelerator.process_index() == 0 ? 3 : 4, 2);
  auto message = message_of([&] { accelerator.prepare(net); });
  expect_says(message,
              accelerator.process_index() == 0 ? "missing: rank 1" : "different models on the ranks");
}

RANKS_TEST(2, DataParallel, a_parameter_that_the_last_backward_left_out_is_named_before_the_update) {
  Accelerator accelerator;
  TwoHeads net;
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1}));
  accelerator.backward(model(at::ones({1, 2}), false).first.sum());
  auto message = message_of([&] { optimizer.step(); });
  expect_says(message, "without a gradient: b.weight, b.bias");
  expect_says(message, "find_unused_parameters");
  expect_says(message_of([&] { model(at::ones({1, 2}), false); }), "b.weight");  // and if there is no update
}

RANKS_TEST(2, DataParallel, local_gradients_need_not_be_finished) {
  Accelerator accelerator;
  TwoHeads net;
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1}));
  auto local = accelerator.no_sync(model);
  accelerator.backward(model(at::ones({1, 2}), false).first.sum());
  optimizer.step();
}

TEST(DataParallel, gradients_that_nobody_averages_are_told_of) {
  if (test::is_rank()) {
    Accelerator accelerator;
    nn::Linear net(2, 1);
    auto optimizer = accelerator.prepare(optim::SGD(net->parameters(), {.lr = 0.1}));
    for (int step = 0; step < 2; ++step) {
      accelerator.backward(net(at::ones({1, 2})).sum());
      optimizer.step();
    }
    return;
  }
  auto ended = test::run_on_ranks(2);
  EXPECT_EQ(ended.code, 0) << ended.output;
  size_t first = ended.output.find("not averaged over the ranks");
  EXPECT_NE(first, std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("not averaged over the ranks", first + 1), std::string::npos) << ended.output;
}

RANKS_TEST(2, DataParallel, gradients_that_went_around_the_prepared_model_are_an_error) {
  Accelerator accelerator;
  nn::Linear net(2, 1);
  auto model = accelerator.prepare(net);
  auto x = at::ones({1, 2});
  expect_says(message_of([&] { accelerator.backward(model->forward(x).sum()); }),
              "Call model(x), not model->forward(x)");
  accelerator.backward(model(x).sum());
  {
    auto local = accelerator.no_sync(model);
    auto output = model(x);
    accelerator.backward(output.sum(), {.retain_graph = true});
    accelerator.backward(output.sum());  // local gradients may come twice
  }
  auto output = model(x);
  accelerator.backward(output.sum(), {.retain_graph = true});
  expect_says(message_of([&] { accelerator.backward(output.sum()); }), "not reduced");
}

TEST(DataParallel, on_one_process_a_model_that_is_never_called_as_prepared_is_an_error_too) {
  Accelerator accelerator({.device = "cpu"});
  nn::Linear net(2, 1);
  auto model = accelerator.prepare(net);
  auto x = at::ones({1, 2});
  expect_says(message_of([&] { accelerator.backward(model->forward(x).sum()); }), "Call model(x)");
  auto output = model(x);
  accelerator.backward(output.sum(), {.retain_graph = true});
  accelerator.backward(output.sum());
  accelerator.backward(at::ones({1}).requires_grad_().sum());  // somebody else's loss
}

RANKS_TEST(2, DataParallel, two_accelerators_share_the_group) {
  Accelerator first;
  {
    Accelerator second;
    EXPECT_EQ(second.gather(at::zeros({1})).size(0), 2);
  }
  EXPECT_EQ(first.gather(at::zeros({1})).size(0), 2);
}

}  // namespace
}  // namespace ivme
