#include "ivme/optim.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ivme/error.h"
#include "ivme/schedule.h"
#include "message_of.h"

namespace ivme::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

nlohmann::json recorded() {
  std::ifstream file(IVME_SOURCE_DIR "/tests/data/optim_values.json");
  return nlohmann::json::parse(file);
}

// The formula of tests/data/make_optim_values.py.
double number(uint32_t salt, uint32_t i) {
  uint32_t x = salt * 2654435761u + i * 40503u + 12345u;
  x ^= x >> 13;
  x *= 0x5BD1E995u;
  x ^= x >> 15;
  return std::ldexp(static_cast<int32_t>(x & 0xFFFFFF) - 0x800000, -23 - static_cast<int>(x >> 24 & 7));
}

at::Tensor numbers(uint32_t salt, int64_t size, at::ScalarType dtype) {
  const at::Tensor result = at::empty({size}, at::kDouble);
  for (int64_t i = 0; i < size; ++i) result.data_ptr<double>()[i] = number(salt, static_cast<uint32_t>(i));
  return result.to(dtype);
}

at::Tensor parameter(at::Tensor value) { return value.set_requires_grad(true); }

template <class Bits>
std::string hex(const at::Tensor& tensor) {
  std::string text;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(tensor.data_ptr()) + i * sizeof(Bits), sizeof(Bits));
    char digits[20];
    std::snprintf(digits, sizeof digits, "%0*llx", static_cast<int>(2 * sizeof(Bits)),
                  static_cast<unsigned long long>(bits));
    text += digits;
  }
  return text;
}

std::string hex(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 2:
      return hex<uint16_t>(tensor);
    case 4:
      return hex<uint32_t>(tensor);
    default:
      return hex<uint64_t>(tensor);
  }
}

Optimizer make_optimizer(const std::string& name, std::vector<at::Tensor> parameters,
                         const nlohmann::json& o) {
  if (name == "SGD")
    return SGD(parameters, {.lr = o["lr"],
                            .momentum = o.value("momentum", 0.0),
                            .dampening = o.value("dampening", 0.0),
                            .weight_decay = o.value("weight_decay", 0.0),
                            .nesterov = o.value("nesterov", false),
                            .maximize = o.value("maximize", false)});
  const auto adam = [&](auto options) {
    options.lr = o["lr"];
    options.betas = o.value("betas", options.betas);
    options.eps = o.value("eps", options.eps);
    options.weight_decay = o.value("weight_decay", options.weight_decay);
    options.amsgrad = o.value("amsgrad", false);
    options.maximize = o.value("maximize", false);
    return options;
  };
  if (name == "Adam") return Adam(parameters, adam(AdamOptions{}));
  return AdamW(parameters, adam(AdamWOptions{}));
}

// Kernels with and without fused multiply-add round differently, in Python as here, so both are recorded.
const char* recorded_capability() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX2" || capability == "AVX512") return "AVX2";
  return capability == "DEFAULT" ? "DEFAULT" : nullptr;
}

TEST(Optimizer, updates_have_the_bits_of_python) {
  if (!recorded_capability()) GTEST_SKIP() << "no values recorded for " << at::get_cpu_capability();
  const std::vector<int64_t> sizes = {7, 33, 261};
  const nlohmann::json cases = recorded()["optimizers"][recorded_capability()];
  ASSERT_EQ(cases.size(), 20u);
  for (const auto& c : cases) {
    const std::string dtype_name = c["dtype"];
    const auto dtype = dtype_name == "float64"   ? at::kDouble
                       : dtype_name == "float32" ? at::kFloat
                                                 : at::kBFloat16;
    std::vector<at::Tensor> parameters;
    for (uint32_t p = 0; p < 3; ++p) parameters.push_back(parameter(numbers(p, sizes[p], dtype)));
    Optimizer optimizer = make_optimizer(c["name"], parameters, c["options"]);
    for (uint32_t step = 1; step <= 20; ++step) {
      for (uint32_t p = 0; p < 3; ++p) {
        const bool skip = p == 2 && (step == 4 || step == 5);
        parameters[p].mutable_grad() = skip ? at::Tensor() : numbers(100 * step + p, sizes[p], dtype);
      }
      optimizer.step();
    }
    for (size_t p = 0; p < 3; ++p)
      EXPECT_EQ(hex(parameters[p]), c["after"][p]) << c["name"] << ' ' << dtype_name << ' ' << c["options"];
  }
}

TEST(Optimizer, a_step_changes_neither_gradients_nor_what_autograd_knows) {
  for (const char* name : {"SGD", "Adam", "AdamW"}) {
    const at::Tensor p = parameter(numbers(1, 33, at::kFloat));
    const at::Tensor gradient = numbers(2, 33, at::kFloat), copy = gradient.clone();
    Optimizer optimizer = make_optimizer(name, {p}, {{"lr", 0.1}, {"weight_decay", 0.1}, {"momentum", 0.9}});
    const auto loss = p.square().sum();  // needs the old value of p
    p.mutable_grad() = gradient;
    optimizer.step();
    optimizer.step();
    EXPECT_TRUE(gradient.equal(copy)) << name;
    EXPECT_TRUE(p.requires_grad() && p.is_leaf()) << name;
    EXPECT_THROW(loss.backward(), std::exception) << name << ": a stale value was not noticed";
  }
}

TEST(Optimizer, the_first_momentum_is_a_copy_of_the_gradient) {
  const at::Tensor p = parameter(at::zeros({3}));
  SGD optimizer({p}, {.lr = 1, .momentum = 0.5});
  p.mutable_grad() = at::ones({3});
  optimizer.step();
  p.mutable_grad().zero_();
  optimizer.step();
  EXPECT_EQ(p[0].item<float>(), -1.5f);
}

TEST(Optimizer, a_tied_parameter_is_updated_once) {
  const at::Tensor p = parameter(at::ones({2}));
  SGD optimizer({p, p}, {.lr = 0.25});
  EXPECT_EQ(optimizer.impl()->parameters(0).size(), 1u);
  p.mutable_grad() = at::ones({2});
  optimizer.step();
  EXPECT_EQ(p[0].item<float>(), 0.75f);
}

TEST(Optimizer, groups_have_their_own_options_and_copies_are_the_same_optimizer) {
  const at::Tensor a = parameter(at::ones({1})), b = parameter(at::ones({1}));
  SGD optimizer({{{a}, {.lr = 0.5}}, {{b}, {.lr = 0.25}}});
  a.mutable_grad() = at::ones({1});
  b.mutable_grad() = at::ones({1});
  Optimizer copy = optimizer;
  copy.set_lr(1, 0.125);
  optimizer.step();
  EXPECT_EQ(a.item<float>(), 0.5f);
  EXPECT_EQ(b.item<float>(), 0.875f);
  copy.set_lr(0.5);
  EXPECT_EQ(optimizer.lr(1), 0.5);
  EXPECT_THROW(optimizer.lr(2), Error);
}

TEST(Optimizer, adamw_groups_decay_with_their_own_numbers) {
  const at::Tensor a = parameter(at::ones({1}, at::kDouble)), b = parameter(at::ones({1}, at::kDouble));
  AdamW optimizer({{{a}, {.lr = 0.5, .weight_decay = 0}}, {{b}, {.lr = 0.25, .weight_decay = 0.5}}});
  for (const at::Tensor& p : {a, b}) p.mutable_grad() = at::zeros({1}, at::kDouble);
  optimizer.step();
  EXPECT_EQ(a.item<double>(), 1.0);
  EXPECT_EQ(b.item<double>(), 1 - 0.25 * 0.5);
}

TEST(ZeroGrad, drops_or_fills_gradients_that_are_views_of_a_bucket) {
  const at::Tensor p = parameter(at::ones({2})), without = parameter(at::ones({2}));
  SGD optimizer({p, without});
  const at::Tensor bucket = at::ones({5});
  p.mutable_grad() = bucket.narrow(0, 1, 2);
  optimizer.zero_grad(false);
  EXPECT_EQ(bucket.sum().item<float>(), 3);
  EXPECT_EQ(p.grad().data_ptr(), bucket.narrow(0, 1, 2).data_ptr());
  optimizer.zero_grad();
  EXPECT_FALSE(p.grad().defined());

  torch::optim::SGD theirs(std::vector<at::Tensor>{p, without}, 0.1);
  p.mutable_grad() = bucket.narrow(0, 0, 2);
  EXPECT_ANY_THROW(theirs.zero_grad(false)) << "torch has learned it: wrap() may call it";
  wrap(theirs).zero_grad(false);
  EXPECT_EQ(bucket.sum().item<float>(), 2);
  // A gradient with a history (create_graph), which is a view besides.
  p.mutable_grad() = (without * 2).narrow(0, 0, 2);
  optimizer.zero_grad(false);
  EXPECT_FALSE(p.grad().requires_grad());
  EXPECT_EQ(p.grad().abs().sum().item<float>(), 0);
}

using test::message_of;

TEST(Optimizer, bad_arguments_are_sentences) {
  const at::Tensor p = parameter(at::ones({2}));
  const std::vector<at::Tensor> one = {p};
  EXPECT_THAT(message_of([] { SGD(std::vector<at::Tensor>{}); }), HasSubstr("no parameter"));
  EXPECT_THAT(message_of([&] { SGD(one, {.lr = -1}); }), HasSubstr("lr = -1. It must be 0 or more"));
  EXPECT_THAT(message_of([&] { SGD(one, {.momentum = -0.5}); }), HasSubstr("momentum = -0.5"));
  EXPECT_THAT(message_of([&] { SGD(one, {.weight_decay = NAN}); }), HasSubstr("weight_decay = nan"));
  EXPECT_THAT(message_of([&] { SGD(one, {.nesterov = true}); }), HasSubstr("nesterov with momentum = 0"));
  EXPECT_THAT(message_of([&] { SGD(one, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }),
              HasSubstr("nesterov with dampening = 0.1"));
  EXPECT_THAT(message_of([&] { Adam(one, {.lr = -1}); }), HasSubstr("Adam was given lr = -1"));
  EXPECT_THAT(message_of([&] { Adam(one, {.betas = {1.0, 0.9}}); }),
              HasSubstr("betas[0] = 1. It must be at least 0"));
  EXPECT_THAT(message_of([&] { AdamW(one, {.betas = {0.9, -0.1}}); }),
              HasSubstr("AdamW was given betas[1] = -0.1"));
  EXPECT_THAT(message_of([&] { AdamW(one, {.eps = -1e-8}); }), HasSubstr("eps = -1e-08"));
  EXPECT_THAT(message_of([&] { AdamW(one, {.weight_decay = -1}); }), HasSubstr("weight_decay = -1"));
  EXPECT_THAT(message_of([] { SGD(std::vector<at::Tensor>{at::Tensor()}); }), HasSubstr("undefined tensor"));
  EXPECT_THAT(message_of([&] { SGD(std::vector<at::Tensor>{p * 2}); }), HasSubstr("leaves"));
  EXPECT_THAT(message_of([&] { SGD({{{p}, {}}, {{p}, {}}}); }), HasSubstr("groups 0 and 1"));
  EXPECT_THAT(message_of([&] { Adam({at::zeros({1}, at::kComplexFloat)}); }), HasSubstr("complex"));
  EXPECT_THAT(message_of([] { Optimizer(std::shared_ptr<OptimizerImpl>()); }),
              HasSubstr("no optimizer behind it"));
}

TEST(Optimizer, a_sparse_gradient_is_an_error) {
  const at::Tensor p = parameter(at::ones({2}));
  p.mutable_grad() = at::ones({2}).to_sparse();
  for (const char* name : {"SGD", "Adam", "AdamW"})
    EXPECT_THAT(message_of([&] { make_optimizer(name, {p}, {{"lr", 0.1}}).step(); }), HasSubstr("sparse"))
        << name;
  EXPECT_EQ(p.sum().item<float>(), 2);
}

TEST(Optimizer, describes_itself_under_pythons_names) {
  const at::Tensor p = parameter(at::ones({2}));
  const Description sgd = SGD({p}, {.lr = 0.05, .momentum = 0.9, .nesterov = true}).description();
  EXPECT_EQ(sgd.name, "SGD");
  EXPECT_THAT(sgd.values, ElementsAre(Pair("lr", 0.05), Pair("momentum", 0.9), Pair("dampening", 0),
                                      Pair("weight_decay", 0), Pair("nesterov", 1), Pair("maximize", 0)));
  const Description adamw = AdamW({p}).description();
  EXPECT_EQ(adamw.name, "AdamW");
  EXPECT_THAT(adamw.values,
              ElementsAre(Pair("lr", 1e-3), Pair("beta1", 0.9), Pair("beta2", 0.999), Pair("eps", 1e-8),
                          Pair("weight_decay", 0.01), Pair("amsgrad", 0), Pair("maximize", 0)));
  EXPECT_EQ(Adam({p}).description().name, "Adam");
}

TEST(Wrap, any_torch_optimizer_steps_and_tells_its_rates) {
  const at::Tensor p = parameter(at::ones({2}));
  const std::vector<at::Tensor> one = {p};
  torch::optim::SGD sgd(one, torch::optim::SGDOptions(0.5).momentum(0.9));
  Optimizer optimizer = wrap(sgd);
  p.mutable_grad() = at::ones({2});
  optimizer.set_lr(0.25);
  optimizer.step();
  EXPECT_EQ(p[0].item<float>(), 0.75f);
  EXPECT_EQ(optimizer.description().name, "SGD");
  EXPECT_THAT(optimizer.description().values, testing::Contains(Pair("momentum", 0.9)));
  EXPECT_TRUE(optimizer.impl()->parameters(0)[0].is_same(p));

  Optimizer owned = wrap(std::make_shared<torch::optim::RMSprop>(one, torch::optim::RMSpropOptions(0.125)));
  EXPECT_EQ(owned.description().name, "RMSprop");
  EXPECT_EQ(owned.lr(), 0.125);
  Schedule schedule = step_decay(owned, {.step_size = 1, .gamma = 0.5});
  schedule.step();
  EXPECT_EQ(owned.lr(), 0.0625);

  EXPECT_EQ(wrap(std::make_shared<torch::optim::AdamW>(one)).description().name, "AdamW");
  EXPECT_THAT(message_of([&] { wrap(std::make_shared<torch::optim::LBFGS>(one)); }), HasSubstr("closure"));
}

TEST(Wrap, torchs_sgd_has_the_bits_of_ours) {
  const at::Tensor a = parameter(numbers(1, 261, at::kFloat)), b = parameter(a.detach().clone());
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01);
  Optimizer theirs = wrap(std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{a}, options));
  SGD ours({b}, {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
  for (uint32_t step = 1; step <= 20; ++step) {
    a.mutable_grad() = b.mutable_grad() = numbers(100 + step, 261, at::kFloat);
    theirs.step();
    ours.step();
  }
  EXPECT_TRUE(a.equal(b));
}

TEST(Wrap, a_torch_schedule_steps_and_tells_its_rates) {
  torch::optim::SGD sgd(std::vector<at::Tensor>{parameter(at::ones({2}))}, 0.5);
  torch::optim::StepLR theirs(sgd, 2, 0.5);
  Schedule schedule = wrap(theirs);
  EXPECT_EQ(schedule.lr(), 0.5);
  for (int i = 0; i < 3; ++i) schedule.step();
  EXPECT_EQ(schedule.lr(), 0.25);
  EXPECT_EQ(schedule.last_epoch(), 3);
  EXPECT_EQ(schedule.description().name, "StepLR");
  EXPECT_EQ(schedule.optimizer(), nullptr);
}

Schedule make_schedule(const std::string& name, const Optimizer& optimizer, const nlohmann::json& o) {
  const int64_t warmup = o.value("warmup_steps", 0), total = o.value("total_steps", 0);
  const double gamma = o.value("gamma", 0.1);
  if (name == "constant") return constant(optimizer);
  if (name == "constant_with_warmup") return constant_with_warmup(optimizer, {.warmup_steps = warmup});
  if (name == "linear_with_warmup")
    return linear_with_warmup(optimizer, {.warmup_steps = warmup, .total_steps = total});
  if (name == "cosine_with_warmup")
    return cosine_with_warmup(
        optimizer, {.warmup_steps = warmup, .total_steps = total, .cycles = o.value("cycles", 0.5)});
  if (name == "cosine_annealing")
    return cosine_annealing(optimizer, {.total_steps = total, .min_lr = o.value("min_lr", 0.0)});
  if (name == "step_decay") return step_decay(optimizer, {.step_size = o["step_size"], .gamma = gamma});
  if (name == "multi_step") return multi_step(optimizer, {.milestones = o["milestones"], .gamma = gamma});
  return lambda(optimizer, [](int64_t e) { return 1 - static_cast<double>(e) / 16; });
}

SGD two_groups() { return SGD({{{at::zeros({1})}, {.lr = 0.05}}, {{at::zeros({1})}, {.lr = 3e-4}}}); }

TEST(Schedule, every_rate_is_the_double_of_python) {
  const nlohmann::json cases = recorded()["schedules"];
  ASSERT_EQ(cases.size(), 15u);
  for (const auto& c : cases) {
    SGD optimizer = two_groups();
    Schedule schedule = make_schedule(c["name"], optimizer, c["options"]);
    const size_t count = c["lr"][0].size();
    for (size_t e = 0; e < count; ++e) {
      if (e > 0) schedule.step();
      for (size_t g = 0; g < 2; ++g) {
        ASSERT_EQ(schedule.lr(g), c["lr"][g][e].get<double>()) << c["name"] << c["options"] << " step " << e;
        ASSERT_EQ(optimizer.lr(g), schedule.lr(g));
      }
      ASSERT_EQ(schedule.last_epoch(), static_cast<int64_t>(e));
    }
  }
}

TEST(Schedule, step_decay_of_20_lowers_the_rate_in_call_20) {
  SGD optimizer({at::zeros({1})}, {.lr = 1});
  Schedule schedule = step_decay(optimizer, {.step_size = 20});
  for (int i = 0; i < 19; ++i) schedule.step();
  EXPECT_EQ(optimizer.lr(), 1);
  schedule.step();
  EXPECT_EQ(optimizer.lr(), 0.1);
}

TEST(Schedule, a_second_schedule_scales_the_rate_from_before_the_first) {
  SGD optimizer({at::zeros({1})}, {.lr = 0.5});
  linear_with_warmup(optimizer, {.warmup_steps = 10, .total_steps = 100});
  EXPECT_EQ(optimizer.lr(), 0);
  constant(optimizer);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(Schedule, keeps_its_optimizer_and_says_its_total) {
  auto schedule = cosine_with_warmup(two_groups(), {.warmup_steps = 2, .total_steps = 30});
  schedule.step();
  EXPECT_EQ(schedule.optimizer()->lr(0), 0.05 * 0.5);
  EXPECT_EQ(schedule.total_steps(), 30);
  EXPECT_EQ(schedule.description().name, "cosine_with_warmup");
  EXPECT_EQ(step_decay(two_groups(), {.step_size = 3}).total_steps(), std::nullopt);
}

TEST(Schedule, a_throwing_function_leaves_the_schedule_where_it_was) {
  SGD optimizer = two_groups();
  Schedule schedule =
      lambda(optimizer, [](int64_t e) { return e == 1 ? throw std::runtime_error("no") : 0.5; });
  EXPECT_THROW(schedule.step(), std::runtime_error);
  EXPECT_EQ(schedule.last_epoch(), 0);
  EXPECT_EQ(optimizer.lr(1), 1.5e-4);
}

TEST(Schedule, bad_arguments_are_sentences) {
  const SGD o = two_groups();
  EXPECT_THAT(message_of([&] { linear_with_warmup(o, {.warmup_steps = 3}); }),
              HasSubstr("total_steps = 0. It must be 1"));
  EXPECT_THAT(message_of([&] { cosine_with_warmup(o, {.total_steps = -5}); }), HasSubstr("total_steps = -5"));
  EXPECT_THAT(message_of([&] { cosine_with_warmup(o, {.total_steps = 5, .cycles = NAN}); }),
              HasSubstr("cycles"));
  EXPECT_THAT(message_of([&] { cosine_annealing(o, {}); }),
              HasSubstr("cosine_annealing was given total_steps = 0"));
  EXPECT_THAT(message_of([&] { constant_with_warmup(o, {.warmup_steps = -1}); }),
              HasSubstr("warmup_steps = -1"));
  EXPECT_THAT(message_of([&] { step_decay(o, {.step_size = 3 / 4}); }), HasSubstr("step_size = 0"));
  EXPECT_THAT(message_of([&] { multi_step(o, {.milestones = {3, -2}}); }), HasSubstr("a milestone = -2"));
  EXPECT_THAT(message_of([&] { lambda(o, nullptr); }), HasSubstr("empty"));
  EXPECT_THAT(message_of([&] { constant(o).lr(2); }), HasSubstr("group 2"));
}

}  // namespace
}  // namespace ivme::optim
