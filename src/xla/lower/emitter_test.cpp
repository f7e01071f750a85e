#include "xla/lower/emitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ivme/error.h"

namespace ivme::xla {
namespace {

using testing::HasSubstr;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class EmitterLoop : public testing::Test {
 protected:
  Emitter emitter;
  const Shape shape{Dtype::f32, {2}};
  Hlo x = emitter.name_value("%arg0", shape);
};

TEST_F(EmitterLoop, text_holds_one_pass) {
  auto end = emitter.repeat(1000, {x}, [&](const Hlo&, const std::vector<Hlo>& carried) {
    return std::vector{emitter.binary("multiply", carried[0], x)};
  });
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].shape, shape);
  EXPECT_EQ(count(emitter.text(), "stablehlo.multiply"), 1U);
}

// A constant of the body cannot be seen after it; one from before can be seen within.
TEST_F(EmitterLoop, constants_are_written_where_they_can_be_seen) {
  emitter.constant(7.5, shape);
  emitter.repeat(3, {x}, [&](const Hlo&, const std::vector<Hlo>& carried) {
    return std::vector{emitter.binary("add", emitter.constant(2.5, shape),
                                      emitter.binary("add", carried[0], emitter.constant(7.5, shape)))};
  });
  emitter.constant(2.5, shape);
  EXPECT_EQ(count(emitter.text(), "dense<2.5e+00>"), 2U);
  EXPECT_EQ(count(emitter.text(), "dense<7.5e+00>"), 1U);
}

TEST_F(EmitterLoop, a_pass_must_keep_the_shapes) {
  try {
    emitter.repeat(3, {x}, [&](const Hlo&, const std::vector<Hlo>& carried) {
      return std::vector{emitter.convert(carried[0], Dtype::f64)};
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("carries (tensor<2xf32>), and a pass makes (tensor<2xf64>)"));
  }
}

}  // namespace
}  // namespace ivme::xla
