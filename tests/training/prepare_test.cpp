#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <map>

#include "ranks.h"
#include "training/loop.h"

namespace ivme {
namespace {

using test::grad_of;
using test::message_of;
using test::Ramp;
using test::Scale;
using test::ScaleImpl;
using testing::HasSubstr;

TEST(Prepare, takes_its_objects_in_any_order_and_returns_them_in_that_order) {
  Accelerator accelerator;
  Scale net;
  optim::SGD sgd(net->parameters(), {.lr = 1});
  auto [schedule, loader, model, optimizer] =
      accelerator.prepare(optim::constant(sgd), data_loader(Ramp{2}), net, sgd);
  for (auto& x : loader) {
    accelerator.backward(model(x).sum());
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
  }
  EXPECT_EQ(net->weight(), -3);
  EXPECT_EQ(schedule.last_epoch(), 2);
}

TEST(Prepare, a_single_object_comes_back_alone) {
  Accelerator accelerator;
  auto model = accelerator.prepare(Scale());
  static_assert(std::is_same_v<decltype(model), PreparedModel<ScaleImpl>>);
  EXPECT_EQ(model(at::ones({1})).item<double>(), 0);
}

TEST(Prepare, what_was_prepared_before_comes_back_the_same) {
  Accelerator accelerator;
  Scale net;
  optim::SGD sgd(net->parameters());
  auto constant = optim::constant(sgd);
  auto [model, optimizer, schedule, loader] = accelerator.prepare(net, sgd, constant, data_loader(Ramp{2}));
  EXPECT_EQ(accelerator.prepare(net).runtime(), model.runtime());
  EXPECT_EQ(accelerator.prepare(net.ptr()).runtime(), model.runtime());
  EXPECT_EQ(accelerator.prepare(sgd).state(), optimizer.state());
  EXPECT_EQ(accelerator.prepare(constant).state(), schedule.state());
  auto [again, o, s, l] = accelerator.prepare(model, optimizer, schedule, loader);
  EXPECT_EQ(again.runtime(), model.runtime());
  EXPECT_EQ(o.state(), optimizer.state());
  EXPECT_EQ(s.state(), schedule.state());
  EXPECT_EQ(l.core(), loader.core());
}

TEST(Prepare, a_second_preparation_does_not_step_a_schedule_or_an_optimizer_twice) {
  Accelerator accelerator;
  Scale net;
  optim::SGD sgd(net->parameters(), {.lr = 1});
  auto first = accelerator.prepare(sgd), second = accelerator.prepare(sgd);
  net->w.mutable_grad() = at::ones({1});
  first.step();
  EXPECT_EQ(net->weight(), -1);
  second.zero_grad();
  EXPECT_FALSE(net->w.grad().defined());
}

TEST(Prepare, torchs_optimizers_come_by_reference_or_shared) {
  Accelerator accelerator;
  Scale a, b;
  torch::optim::SGD referred(a->parameters(), torch::optim::SGDOptions(1.0));
  auto shared = std::make_shared<torch::optim::Adam>(b->parameters(), torch::optim::AdamOptions(0.5));
  torch::optim::StepLR halving(referred, 1, 0.5);
  auto [of_a, of_b, schedule] = accelerator.prepare(referred, shared, halving);
  EXPECT_EQ(accelerator.prepare(referred).state(), of_a.state());
  EXPECT_EQ(accelerator.prepare(shared).state(), of_b.state());
  EXPECT_EQ(accelerator.prepare(halving).state(), schedule.state());
  a->w.mutable_grad() = at::ones({1});
  b->w.mutable_grad() = at::ones({1});
  of_a.step();
  of_b.step();
  EXPECT_EQ(a->weight(), -1);
  EXPECT_NEAR(b->weight(), -0.5, 1e-6);
  of_a.zero_grad();
  EXPECT_FALSE(a->w.grad().defined());
  schedule.step();
  schedule.step();
  EXPECT_EQ(referred.param_groups()[0].options().get_lr(), 0.5);
}

struct Answer {
  at::Tensor scores;
  std::string note;
};
void for_each_tensor(Answer& answer, const TensorVisitor& visit) { visit(answer.scores); }

at::Tensor half(const at::Tensor& tensor) { return tensor.to(at::kBFloat16); }

template <class Output>
struct ShapedImpl : ScaleImpl {
  Output forward(const at::Tensor& x);
};
template <>
std::tuple<at::Tensor, at::Tensor> ShapedImpl<std::tuple<at::Tensor, at::Tensor>>::forward(
    const at::Tensor& x) {
  return {half(w * x), w};
}
template <>
std::map<std::string, at::Tensor> ShapedImpl<std::map<std::string, at::Tensor>>::forward(
    const at::Tensor& x) {
  return {{"out", half(w * x)}};
}
template <>
std::optional<at::Tensor> ShapedImpl<std::optional<at::Tensor>>::forward(const at::Tensor& x) {
  return half(w * x);
}
template <>
Answer ShapedImpl<Answer>::forward(const at::Tensor& x) {
  return {half(w * x), "note"};
}

// Through each shape of output, gradients reach the weight and are averaged.
void check_forwards() {
  Accelerator accelerator({.mixed_precision = Precision::bf16});
  at::Tensor x = at::full({1}, accelerator.process_index() * 2.0 + 1);
  double expected = accelerator.num_processes();  // the mean of 1, 3, ...
  auto check = [&](auto impl, auto pick) {
    auto model = accelerator.prepare(impl);
    auto output = model(x);
    at::Tensor scores = pick(output);
    EXPECT_EQ(scores.scalar_type(), at::kFloat);
    accelerator.backward(scores.sum());
    EXPECT_EQ(grad_of(impl->w), expected);
  };
  using Map = std::map<std::string, at::Tensor>;
  check(std::make_shared<ShapedImpl<std::tuple<at::Tensor, at::Tensor>>>(),
        [](auto& out) { return std::get<0>(out); });
  check(std::make_shared<ShapedImpl<Map>>(), [](auto& out) { return out.at("out"); });
  check(std::make_shared<ShapedImpl<std::optional<at::Tensor>>>(), [](auto& out) { return *out; });
  check(std::make_shared<ShapedImpl<Answer>>(), [](Answer& out) {
    EXPECT_EQ(out.note, "note");
    return out.scores;
  });
}

TEST(PreparedModel, forwards_of_any_result_are_called_as_before) { check_forwards(); }
RANKS_TEST(2, PreparedModel, forwards_of_any_result_are_averaged_over_ranks) { check_forwards(); }

struct ManyImpl : ScaleImpl {
  std::vector<std::string> calls;
  at::Tensor forward(const at::Tensor& x, double factor, const std::string& note = "default") {
    calls.push_back(note);
    return w * x * factor;
  }
};
struct SilentImpl : ScaleImpl {
  int calls = 0;
  void forward(int by) { calls += by; }
};

TEST(PreparedModel, takes_several_arguments_and_returns_nothing_where_the_module_does) {
  Accelerator accelerator;
  auto many = std::make_shared<ManyImpl>();
  auto model = accelerator.prepare(many);
  accelerator.backward(model(at::ones({1}), 3.0, "given").sum());
  EXPECT_EQ(grad_of(many->w), 3);
  EXPECT_EQ(model(at::ones({1}), 2.0).item<double>(), 0);
  EXPECT_THAT(model->calls, testing::ElementsAre("given", "default"));
  EXPECT_EQ(accelerator.unwrap_model(model), many);
  auto silent = accelerator.prepare(std::make_shared<SilentImpl>());
  silent(2);
  silent.forward(3);
  EXPECT_EQ(silent->calls, 5);
}

struct TiedImpl : torch::nn::Module {
  at::Tensor embedding = register_parameter("embedding", at::ones({3, 2}));
  at::Tensor head = register_parameter("head", embedding);
  at::Tensor bias = register_parameter("bias", at::zeros({3}));
  at::Tensor forward(const at::Tensor& tokens) {
    return embedding.index_select(0, tokens).matmul(head.t()) + bias;
  }
};

// Weights copied one by one, as a move to a device that holds tensors of another kind does.
struct BreaksTiesImpl : TiedImpl {
  using TiedImpl::to;
  void to(torch::Device, bool) override {
    head = parameters_["head"] = embedding.detach().clone().requires_grad_();
  }
};
struct TiesAgainImpl : BreaksTiesImpl {
  void tie_weights() { head = parameters_["head"] = embedding; }
};

template <class Impl>
void check_tied_training() {
  Accelerator accelerator;
  auto net = std::make_shared<Impl>();
  auto model = accelerator.prepare(net);
  auto optimizer = accelerator.prepare(optim::SGD(net->parameters(), {.lr = 0.5}));
  EXPECT_TRUE(net->head.is_same(net->embedding));
  accelerator.backward(model(at::zeros({1}, at::kLong)).sum());
  // d/dW of sum_j W_j . W_0: the head gives every row W_0, the embedding row 0 the sum of the rows.
  EXPECT_EQ(grad_of(net->embedding), 12);
  optimizer.step();
  EXPECT_EQ(net->embedding.sum().template item<double>(), 0);
  EXPECT_TRUE(net->head.is_same(net->embedding));
}

TEST(TiedWeights, stay_one_parameter_that_is_updated_once) { check_tied_training<TiedImpl>(); }
RANKS_TEST(2, TiedWeights, stay_one_parameter_on_several_ranks) { check_tied_training<TiedImpl>(); }
TEST(TiedWeights, are_tied_again_after_a_move_that_broke_them) { check_tied_training<TiesAgainImpl>(); }

TEST(TiedWeights, that_a_move_breaks_are_an_error_that_counts_them) {
  Accelerator accelerator;
  auto net = std::make_shared<BreaksTiesImpl>();
  EXPECT_THAT(message_of([&] { accelerator.prepare(net); }),
              testing::AllOf(HasSubstr("2 parameters became 3"), HasSubstr("tie_weights()")));
}

RANKS_TEST(2, Prepare, every_rank_starts_from_rank_0s_parameters_and_buffers) {
  Accelerator accelerator;
  torch::nn::BatchNorm1d net(2);
  double rank = accelerator.process_index();
  net->weight.detach().fill_(5 + rank);
  net->running_mean.fill_(7 + rank);
  auto model = accelerator.prepare(net);
  EXPECT_EQ(net->weight[0].item<double>(), 5);
  EXPECT_EQ(net->running_mean[0].item<double>(), 7);
  net->running_mean.fill_(9 + rank);
  model(at::ones({4, 2}));  // rank 0's buffers come first: 0.9 * 9 + 0.1 * 1
  EXPECT_NEAR(net->running_mean[0].item<double>(), 8.2, 1e-6);
}

RANKS_TEST(2, Prepare, parameters_that_a_forward_leaves_out_can_be_declared) {
  Accelerator accelerator({.data_parallel = {.find_unused_parameters = true}});
  struct HalfImpl : ScaleImpl {
    at::Tensor unused = register_parameter("unused", at::zeros({1}));
  };
  auto net = std::make_shared<HalfImpl>();
  auto model = accelerator.prepare(net);
  for (int step = 0; step < 3; ++step) {
    net->w.mutable_grad() = at::Tensor();
    accelerator.backward(model(at::full({1}, 2.0 * accelerator.process_index())).sum());
    EXPECT_EQ(grad_of(net->w), 1);
  }
}

RANKS_TEST(2, Prepare, gradients_may_be_views_of_the_buckets) {
  Accelerator accelerator({.data_parallel = {.gradient_as_bucket_view = true}});
  Scale net;
  auto [model, optimizer] = accelerator.prepare(net, optim::SGD(net->parameters(), {.lr = 1}));
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad(step != 2);
    accelerator.backward(model(at::full({1}, 2.0 * accelerator.process_index())).sum());
    optimizer.step();
    EXPECT_EQ(net->weight(), -step);
  }
}

TEST(Prepare, an_empty_holder_is_refused_with_a_sentence) {
  Accelerator accelerator;
  EXPECT_THAT(message_of([&] { accelerator.prepare(std::shared_ptr<ScaleImpl>()); }),
              HasSubstr("Construct the model"));
}

void check_sizes(bool split) {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .sharing = {.split_batches = split}});
  EXPECT_THAT(message_of([&] { accelerator.observed_batch_size(); }), HasSubstr("no loader"));
  auto first = accelerator.prepare(data_loader(Ramp{100}, {.batch_size = 8}));
  int share = split ? 1 : accelerator.num_processes();
  EXPECT_EQ(accelerator.observed_batch_size(), 24 * share);
  auto second = accelerator.prepare(data_loader(Ramp{100}, {.batch_size = 10}));
  EXPECT_THAT(message_of([&] { accelerator.observed_batch_size(); }), HasSubstr("Pass the loader"));
  for ([[maybe_unused]] auto& batch : second) EXPECT_EQ(accelerator.observed_batch_size(), 30 * share);
  EXPECT_EQ(accelerator.observed_batch_size(second), 30 * share);
  EXPECT_EQ(accelerator.scale_learning_rate(0.1), 0.1 * accelerator.num_processes());
  bool alone = accelerator.num_processes() == 1;
  EXPECT_EQ(accelerator.distributed_type(), alone ? DistributedType::NO : DistributedType::MULTI_CPU);
  EXPECT_EQ(first.size(), 100 / 8 / share + 1);
}

TEST(Facts, an_update_sees_the_batches_of_its_micro_batches) { check_sizes(false); }
RANKS_TEST(2, Facts, an_update_sees_the_batches_of_all_ranks) { check_sizes(false); }
RANKS_TEST(2, Facts, split_batches_already_counts_all_ranks) { check_sizes(true); }

TEST(Facts, tpu_is_another_word_for_xla) { EXPECT_EQ(DistributedType::TPU, DistributedType::XLA); }

TEST(Facts, only_one_process_prints) {
  if (test::is_rank()) {
    Accelerator accelerator;
    EXPECT_EQ(accelerator.is_main_process(), accelerator.process_index() == 0);
    EXPECT_EQ(accelerator.is_last_process(), accelerator.process_index() == 2);
    accelerator.print("accuracy ", 0.5, " of ", accelerator.num_processes());
    return;
  }
  auto ended = test::run_on_ranks(3);
  EXPECT_EQ(ended.code, 0) << ended.output;
  size_t first = ended.output.find("accuracy 0.5 of 3");
  ASSERT_NE(first, std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("accuracy 0.5 of 3", first + 1), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace ivme
