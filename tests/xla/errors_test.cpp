// What cannot be done on xla is said in a sentence with a remedy, and the step that is being recorded goes
// on.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "ivme/ivme.h"
#include "message_of.h"

namespace ivme {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;

using test::message_of;

// A step is half recorded when something goes wrong, and is finished afterwards.
class XlaErrors : public testing::Test {
 protected:
  XlaErrors() {
    at::NoGradGuard no_grad;
    net->weight.fill_(0.5);
    accelerator.prepare(net);
    x = at::arange(6).to(at::kFloat).view({2, 3}).to(accelerator.device());
    half_recorded = at::linear(x, net->weight);
  }
  ~XlaErrors() override {
    at::NoGradGuard no_grad;
    auto after = half_recorded * 2 + x.sum();
    net->weight.add_(1);
    accelerator.end_step();
    EXPECT_TRUE(at::equal(after.cpu(), at::tensor({18.0F, 27.0F}).view({2, 1})));
    EXPECT_TRUE(at::equal(net->weight.cpu(), at::full({1, 3}, 1.5)));
  }
  Tensor mask() const { return x > 2; }

  Accelerator accelerator{{.device = "xla"}};
  torch::nn::Linear net{torch::nn::LinearOptions(3, 1).bias(false)};
  Tensor x, half_recorded;
};

TEST_F(XlaErrors, unknown_operator) {
  EXPECT_THAT(message_of([&] { at::special_bessel_j0(x); }),
              AllOf(HasSubstr("aten::special_bessel_j0"), HasSubstr("xla"), HasSubstr("CPU")));
}

TEST_F(XlaErrors, unknown_operator_in_place) {
  EXPECT_THAT(message_of([&] { x.i0_(); }), AllOf(HasSubstr("aten::i0"), HasSubstr("CPU")));
}

TEST_F(XlaErrors, operators_whose_result_has_a_size_that_depends_on_data) {
  EXPECT_THAT(message_of([&] { at::nonzero(x); }),
              AllOf(HasSubstr("aten::nonzero"), HasSubstr("depends on data"), HasSubstr("where(")));
  EXPECT_THAT(message_of([&] { at::masked_select(x, mask()); }),
              AllOf(HasSubstr("aten::masked_select"), HasSubstr("where(mask")));
  EXPECT_THAT(message_of([&] { at::_unique2(x); }), AllOf(HasSubstr("unique"), HasSubstr("scatter_add")));
  EXPECT_THAT(message_of([&] { at::bincount(x.to(at::kLong)); }),
              AllOf(HasSubstr("aten::bincount"), HasSubstr("scatter_add")));
  EXPECT_THAT(message_of([&] { at::repeat_interleave(x.select(0, 0).to(at::kLong)); }),
              AllOf(HasSubstr("aten::repeat_interleave"), HasSubstr("index_select")));
  EXPECT_THAT(message_of([&] { at::argwhere(x); }), HasSubstr("depends on data"));
  EXPECT_THAT(message_of([&] { at::where(mask()); }), HasSubstr("depends on data"));
}

TEST_F(XlaErrors, boolean_masks) {
  EXPECT_THAT(message_of([&] { x.index({mask()}); }), AllOf(HasSubstr("boolean mask"), HasSubstr("where(")));
  EXPECT_THAT(message_of([&] { x.index_put_({mask()}, at::ones({3}).to(x.device())); }),
              AllOf(HasSubstr("mask"), HasSubstr("where(")));
}

TEST_F(XlaErrors, tensors_of_two_devices) {
  auto here = at::ones({2, 3});
  for (const auto& message :
       {message_of([&] { x + here; }), message_of([&] { here* x; }), message_of([&] { at::cat({x, here}); }),
        message_of([&] { x.add_(here); }), message_of([&] { at::matmul(x, here.t()); }),
        message_of([&] { at::where(mask(), x, here); })})
    EXPECT_THAT(message, AllOf(HasSubstr("cpu"), HasSubstr("xla"), HasSubstr(".to(accelerator.device())")));
}

TEST_F(XlaErrors, a_cpu_tensor_is_not_written_from_xla) {
  auto here = at::ones({2, 3});
  EXPECT_THAT(message_of([&] { here.add_(x); }), AllOf(HasSubstr("cpu"), HasSubstr("xla")));
  EXPECT_TRUE(at::equal(here, at::ones({2, 3})));
}

TEST_F(XlaErrors, a_batch_that_was_not_moved) {
  EXPECT_THAT(message_of([&] { net(at::ones({2, 3})); }), HasSubstr(".to(accelerator.device())"));
}

TEST_F(XlaErrors, shapes_that_do_not_go_together) {
  EXPECT_THAT(message_of([&] { x + at::ones({4}).to(x.device()); }), AllOf(HasSubstr("3"), HasSubstr("4")));
  EXPECT_THAT(message_of([&] { at::matmul(x, at::ones({4, 2}).to(x.device())); }),
              AllOf(HasSubstr("3"), HasSubstr("4")));
}

TEST_F(XlaErrors, types_that_xla_has_not) {
  EXPECT_THAT(message_of([&] { at::ones({2}, at::kComplexFloat).to(x.device()); }),
              AllOf(HasSubstr("ComplexFloat"), HasSubstr("Convert")));
}

TEST_F(XlaErrors, view_of_what_is_not_in_order) {
  EXPECT_THAT(message_of([&] { x.t().view({6}); }), AllOf(HasSubstr("view"), HasSubstr("reshape")));
}

TEST_F(XlaErrors, an_unknown_operator_within_backward) {
  auto loss = (net(x).sum() * at::ones({}).to(x.device())).square();
  loss.register_hook([](const Tensor& gradient) { return at::special_bessel_j0(gradient); });
  EXPECT_THAT(message_of([&] { accelerator.backward(loss); }), HasSubstr("aten::special_bessel_j0"));
}

TEST_F(XlaErrors, a_data_pointer) {
  EXPECT_THROW(x.data_ptr(), std::exception);
  EXPECT_EQ(x.const_data_ptr(), nullptr);  // libtorch asks itself for it, to see whether tensors overlap
}

}  // namespace
}  // namespace ivme
