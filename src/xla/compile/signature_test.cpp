#include "xla/compile/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "xla/compile/error_of.h"

namespace ivme::xla {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Signature, shapes_and_aliases_are_read) {
  const Signature signature = read_signature(R"(
module @step attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 1 : i32, mhlo.sharding = "{replicated}"},
                         %arg1: tensor<bf16>, %arg2: tensor<0x7xi1> {tf.aliasing_output = 0 : i32})
      -> (tensor<0x7xi1> {jax.result_info = "a)}"}, tensor<2x3xf32>, tensor<4xui8>) {
)");
  const Shape matrix{Dtype::f32, {2, 3}}, scalar{Dtype::bf16, {}}, empty{Dtype::boolean, {0, 7}};
  EXPECT_THAT(signature.arguments, ElementsAre(matrix, scalar, empty));
  EXPECT_THAT(signature.aliases, ElementsAre(1, -1, 0));
  EXPECT_THAT(signature.results, ElementsAre(empty, matrix, Shape{Dtype::u8, {4}}));
}

TEST(Signature, no_arguments_one_result_or_none) {
  EXPECT_THAT(read_signature("module { func.func @main() -> tensor<i64> {").results,
              ElementsAre(Shape{Dtype::i64, {}}));
  EXPECT_TRUE(read_signature("module { func.func @main() {").results.empty());
  EXPECT_TRUE(read_signature("module { func.func @main(%0: tensor<f64>) -> () {").results.empty());
}

TEST(Signature, what_is_no_program_is_refused) {
  for (const char* text : {"", "garbage", "module { func.func @other() { return } }"})
    EXPECT_THAT(error_of([&] { read_signature(text); }), HasSubstr("no function @main"));
}

TEST(Signature, types_that_ivme_has_not_are_refused) {
  for (const char* type :
       {"tensor<?xf32>", "tensor<2xui64>", "tensor<2xf32, #layout>", "i32", "tensor<2x", "tensor<2"})
    EXPECT_THAT(error_of([&] { read_signature(std::string("func.func @main(%0: ") + type); }),
                HasSubstr("cannot be read"))
        << type;
}

}  // namespace
}  // namespace ivme::xla
