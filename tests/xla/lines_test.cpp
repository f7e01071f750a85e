// Messages of the XLA path name the line of this program, and its tensors.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/rmsprop.h>

#include <cstdlib>
#include <functional>

#include "ivme/ivme.h"
#include "message_of.h"
#include "optim/named_state.h"
#include "xla/step.h"

namespace ivme {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using test::message_of;
using testing::HasSubstr;
using testing::StartsWith;

std::string text_of(int line) { return "lines_test.cpp:" + std::to_string(line); }
std::string said_at(int line) { return text_of(line) + ": "; }

// The line that recorded the value which the tensor waits for.
std::string line_of(const Tensor& tensor) { return xla::line_of(*xla::storage_of(tensor).value().node); }

class XlaLines : public testing::Test {
 protected:
  Tensor on_xla(at::IntArrayRef sizes) const { return at::ones(sizes).to(accelerator.device()); }

  Accelerator accelerator{{.device = "xla"}};
  nn::Linear net{nn::LinearOptions(3, 2)};
  PreparedModel<nn::LinearImpl> model = accelerator.prepare(net);
  Tensor x = on_xla({4, 3});
};

// --- errors ------------------------------------------------------------------------------------------------

TEST_F(XlaLines, an_unknown_operator) {
  auto message = message_of([&] { at::special_bessel_j0(x); });
  std::string here = said_at(__LINE__ - 1);
  EXPECT_THAT(message, StartsWith(here + "aten::special_bessel_j0 was called on xla"));
  message = message_of([&] { x.polygamma_(2); });
  here = said_at(__LINE__ - 1);
  EXPECT_THAT(message, StartsWith(here + "aten::polygamma.out was called on xla"));
}

TEST_F(XlaLines, a_result_whose_size_depends_on_data) {
  auto message = message_of([&] { at::nonzero(x); });
  std::string here = said_at(__LINE__ - 1);
  EXPECT_THAT(message, StartsWith(here + "aten::nonzero was called on xla."));
  message = message_of([&] { x.index({x > 2}); });
  here = said_at(__LINE__ - 1);
  EXPECT_THAT(message, StartsWith(here + "aten::index.Tensor was called on xla with a boolean"));
}

TEST_F(XlaLines, a_tensor_on_the_cpu) {
  const auto message = message_of([&] { x + at::ones({4, 3}); });
  const std::string here = said_at(__LINE__ - 1);
  EXPECT_THAT(message, StartsWith(here + "aten::add.Tensor was called with a tensor of shape"));
}

// Inside of libtorch's layer, called by ivme's prepared model: the line is that of the call.
TEST_F(XlaLines, a_batch_that_was_not_moved) {
  const auto message = message_of([&] { model(at::ones({4, 3})); });
  EXPECT_THAT(message, StartsWith(said_at(__LINE__ - 1) + "aten::addmm"));
}

TEST_F(XlaLines, shapes_that_do_not_go_together) {
  const auto message = message_of([&] { at::add(x, on_xla({5})); });
  EXPECT_THAT(message, StartsWith(said_at(__LINE__ - 1)));
}

TEST_F(XlaLines, what_kernels_refuse) {
  auto message = message_of([&] { x.t().view({12}); });
  EXPECT_THAT(message, StartsWith(said_at(__LINE__ - 1) + "view("));
  message = message_of([&] { at::ones({2}, at::kComplexFloat).to(x.device()); });
  EXPECT_THAT(message, StartsWith(said_at(__LINE__ - 1) + "A tensor of type ComplexFloat"));
}

// A function of the user's is a place of its own; who called it is not told.
Tensor bessel(const Tensor& tensor) {
  Tensor result = at::special_bessel_j0(tensor * 2);
  return result + 1;
}
constexpr int line_of_bessel = __LINE__ - 3;

TEST_F(XlaLines, the_innermost_function_counts) {
  EXPECT_THAT(message_of([&] { bessel(x); }), StartsWith(said_at(line_of_bessel)));
}

TEST_F(XlaLines, an_error_within_backward) {
  auto loss = model(x).sum();
  loss.register_hook([](const Tensor& gradient) { return at::special_bessel_j0(gradient); });
  const int line = __LINE__ - 1;
  EXPECT_THAT(message_of([&] { accelerator.backward(loss); }), StartsWith(said_at(line)));
}

// --- what is recorded --------------------------------------------------------------------------------------

TEST_F(XlaLines, operations_know_their_line) {
  const Tensor y = x * 2;
  EXPECT_EQ(line_of(y), text_of(__LINE__ - 1));
  const Tensor out = model(y);
  EXPECT_EQ(line_of(out), text_of(__LINE__ - 1));
  const Tensor zeros = at::zeros({2}, x.options());
  EXPECT_EQ(line_of(zeros), text_of(__LINE__ - 1));
  const Tensor noise = at::randn({2}, x.options());
  EXPECT_EQ(line_of(noise), text_of(__LINE__ - 1));
}

TEST_F(XlaLines, a_gradient_belongs_to_its_forward_operation) {
  const Tensor hidden = model(x);
  const int forward = __LINE__ - 1;
  const Tensor loss = hidden.square().mean();
  accelerator.backward(loss);
  EXPECT_EQ(line_of(net->weight.grad()), text_of(forward) + " (backward)");
  EXPECT_EQ(line_of(net->bias.grad()), text_of(forward) + " (backward)");
}

// Autograd adds them itself, on its own thread.
TEST_F(XlaLines, a_sum_of_gradients_belongs_to_backward) {
  const Tensor one = model(x).sum();
  accelerator.backward(one);
  const Tensor other = model(x * 2).sum();
  accelerator.backward(other);
  EXPECT_EQ(line_of(net->weight.grad()), text_of(__LINE__ - 1) + " (backward)");
}

TEST_F(XlaLines, an_update_belongs_to_the_optimizer_s_step) {
  auto optimizer = accelerator.prepare(optim::AdamW(net->parameters(), {.lr = 1e-2}));
  accelerator.backward(model(x).sum());
  optimizer.step();
  EXPECT_EQ(line_of(net->weight), text_of(__LINE__ - 1));
}

TEST_F(XlaLines, a_known_program_takes_no_lines) {
  const auto step = [&] {
    Tensor y = model(x).sum();
    const std::string line = line_of(y);
    accelerator.end_step();
    return line;
  };
  EXPECT_NE(step(), "");
  EXPECT_NE(step(), "");  // it is known when this one has ended
  EXPECT_EQ(step(), "");
}

// --- another program ---------------------------------------------------------------------------------------

std::string stderr_of(const std::function<void()>& call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

TEST_F(XlaLines, a_branch_is_told_with_its_line) {
  int at_branch = 0, at_other = 0;
  const auto step = [&](bool branch) {
    at::NoGradGuard no_grad;
    Tensor loss = model(x);
    if (branch) {
      loss = loss.tanh();
      at_branch = __LINE__ - 1;
    } else {
      loss = loss.exp();
      at_other = __LINE__ - 1;
    }
    net->bias.add_(loss.sum(0));
    loss.reset();
    accelerator.end_step();
  };
  for (int i = 0; i < 4; ++i) step(false);
  const std::string said = stderr_of([&] { step(true); });
  EXPECT_THAT(said, HasSubstr("is recorded where 'aten::exp' at " + text_of(at_other) + " was."));
  step(true);  // gets its lines
  const std::string more = stderr_of([&] { x = on_xla({5, 3}), step(true); });
  EXPECT_THAT(more, HasSubstr("has 5 rows where it had 4"));
  EXPECT_GT(at_branch, 0);
}

struct Pair {
  Tensor image, label;
};
void for_each_tensor(Pair& pair, const TensorVisitor& visit) {
  visit(pair.image, "image");
  visit(pair.label, "label");
}

// Ten samples of two numbers, as a structure of the user's.
struct Pairs {
  int64_t size() const { return 10; }
  Pair get_batch(const std::vector<int64_t>& indices) const {
    const auto rows = static_cast<int64_t>(indices.size());
    return {at::ones({rows, 3}), at::zeros({rows}, at::kLong)};
  }
};

// Batches of 4, 4 and 2, which nobody pads.
struct FourFourTwo : BatchSampler {
  std::vector<std::vector<int64_t>> batches(int64_t) override { return {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}; }
};

TEST_F(XlaLines, the_last_batch_is_told_by_the_name_of_a_member_and_its_line) {
  Accelerator other({.device = "xla"});
  auto [prepared, optimizer, loader] =
      other.prepare(net, optim::SGD(net->parameters(), {.lr = 0.1}),
                    data_loader(Pairs{}, {.batch_sampler = std::make_shared<FourFourTwo>()}));
  int line = 0;
  const std::string said = stderr_of([&] {
    for (auto& batch : loader) {
      auto output = prepared(batch.image);
      line = __LINE__ - 1;
      other.backward(F::cross_entropy(output, batch.label));
      optimizer.step();
      optimizer.zero_grad();
    }
  });
  EXPECT_THAT(said,
              HasSubstr("input 'image', first used at " + text_of(line) + ", has 2 rows where it had 4"));
}

TEST_F(XlaLines, a_parameter_that_is_thawed_is_called_so) {
  auto optimizer = accelerator.prepare(optim::SGD(net->parameters(), {.lr = 0.1, .momentum = 0.9}));
  const auto step = [&] {
    accelerator.backward(model(x).sum());
    optimizer.step();
    optimizer.zero_grad();
    accelerator.end_step();
  };
  net->weight.set_requires_grad(false);
  step();
  net->weight.set_requires_grad(true);
  EXPECT_THAT(stderr_of(step), HasSubstr("'parameter weight' is trained now and was not before, having a "
                                         "gradient now (thawed, or used by the loss)"));
}

TEST_F(XlaLines, max_programs_names_the_line) {
  Accelerator one({.device = "xla", .max_programs = 1});
  nn::Linear layer(3, 2);
  auto prepared = one.prepare(layer);
  const auto step = [&](bool more) {
    at::NoGradGuard no_grad;
    Tensor update = prepared(x).sum(0);
    if (more) update = update.exp();
    layer->bias.add_(update);
    update.reset();
    one.end_step();
  };
  step(false);
  EXPECT_THAT(message_of([&] { step(true); }),
              HasSubstr("'aten::exp' at " + text_of(__LINE__ - 7) + " (operation"));
}

// --- names -------------------------------------------------------------------------------------------------

TEST_F(XlaLines, gradients_and_optimizer_state_have_names) {
  auto optimizer = accelerator.prepare(optim::AdamW(net->parameters(), {.lr = 1e-2}));
  EXPECT_EQ(xla::name_of(net->weight), "parameter weight");
  std::vector<std::string> names;
  auto* state = dynamic_cast<const optim::NamedState*>(optimizer.unwrap().impl().get());
  ASSERT_TRUE(state);
  const auto add = [&](const Tensor&, const char*, const Tensor& tensor) {
    names.push_back(xla::name_of(tensor));
  };
  state->for_each_state(add);
  EXPECT_THAT(names, testing::ElementsAre("exp_avg of parameter weight", "exp_avg_sq of parameter weight",
                                          "exp_avg of parameter bias", "exp_avg_sq of parameter bias"));
  accelerator.backward(model(x).sum());
  optimizer.step();
  EXPECT_EQ(xla::name_of(net->bias.grad()), "gradient of parameter bias");
}

TEST_F(XlaLines, state_of_torch_s_optimizers_has_names_after_the_first_step) {
  auto optimizer = accelerator.prepare(optim::wrap(
      std::make_shared<torch::optim::RMSprop>(net->parameters(), torch::optim::RMSpropOptions(0.1))));
  accelerator.backward(model(x).sum());
  optimizer.step();
  auto* state = dynamic_cast<const optim::NamedState*>(optimizer.unwrap().impl().get());
  ASSERT_TRUE(state);
  std::vector<std::string> names;
  const auto add = [&](const Tensor&, const char*, const Tensor& tensor) {
    names.push_back(xla::name_of(tensor));
  };
  state->for_each_state(add);
  EXPECT_THAT(names, testing::ElementsAre("square_avg of parameter weight", "square_avg of parameter bias"));
}

struct TiedImpl : nn::Module {
  nn::Linear encoder = register_module("encoder", nn::Linear(nn::LinearOptions(3, 3).bias(false)));
  nn::Linear decoder = register_module("decoder", nn::Linear(nn::LinearOptions(3, 3).bias(false)));
  TiedImpl() { decoder->register_parameter("tied", encoder->weight); }
};

TEST_F(XlaLines, a_tied_parameter_has_all_its_names) {
  auto tied = std::make_shared<TiedImpl>();
  accelerator.prepare(tied);
  EXPECT_EQ(xla::name_of(tied->encoder->weight), "parameter encoder.weight (also decoder.tied)");
}

TEST_F(XlaLines, accumulated_gradients_have_names_before_the_first_step) {
  Accelerator other({.gradient_accumulation_steps = 2, .device = "xla"});
  nn::Linear layer(3, 2);
  auto [prepared, optimizer] =
      other.prepare(layer, optim::SGD(layer->parameters(), {.lr = 0.1, .momentum = 0.9}));
  EXPECT_EQ(xla::name_of(layer->weight.grad()), "gradient of parameter weight");
}

// --- what is said once in a process ------------------------------------------------------------------------

using XlaLinesDeathTest = XlaLines;

TEST_F(XlaLinesDeathTest, a_read_in_the_middle_of_a_step_is_told_with_its_line) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int line = __LINE__ + 4;
  const auto read_early = [&] {
    for (int i = 0; i < 2; ++i) {
      Tensor loss = model(x).sum();
      loss.item<float>();
      Tensor after = loss * 2;
      accelerator.end_step();
    }
    std::exit(0);
  };
  EXPECT_EXIT(read_early(), testing::ExitedWithCode(0),
              "ivme: " + said_at(line) + "a value on xla was read in the middle of a step");
}

TEST_F(XlaLinesDeathTest, the_fallback_to_the_cpu_is_told_with_its_line) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int line = __LINE__ + 3;
  const auto fall_back = [&] {
    setenv("IVME_XLA_CPU_FALLBACK", "1", 1);
    at::special_bessel_j0(x);
    std::exit(0);
  };
  EXPECT_EXIT(fall_back(), testing::ExitedWithCode(0),
              "aten::special_bessel_j0 at " + text_of(line) + " is computed on the CPU");
}

// --- after a failure ---------------------------------------------------------------------------------------

// Nothing has 64 TiB.
TEST_F(XlaLines, after_a_failed_execution_the_step_refuses_to_go_on) {
  at::NoGradGuard no_grad;
  Tensor huge = net->weight.sum().expand({int64_t{1} << 44}).contiguous();
  net->weight.add_(1);
  const std::string failure = message_of([&] { accelerator.end_step(); });
  EXPECT_THAT(failure, HasSubstr("Out of memory"));
  huge.reset();
  net->weight.add_(1);
  const std::string refusal = message_of([&] { accelerator.end_step(); });
  EXPECT_THAT(refusal, StartsWith("The step cannot go on: the execution of one before it failed"));
  EXPECT_THAT(refusal, HasSubstr(failure));
  EXPECT_THAT(message_of([&] { net->weight.cpu(); }), HasSubstr(refusal));
}

}  // namespace
}  // namespace ivme
