#include "xla/lower/promotion.h"

#include <gtest/gtest.h>

namespace ivme::xla {
namespace {

constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64,
                            Dtype::i32, Dtype::i16, Dtype::i8,  Dtype::u8,   Dtype::boolean};

// One letter for each dtype, in the order above.
constexpr std::string_view letters = "fdhglisyub";
// torch.result_type(a, b) in PyTorch 2.13: rows are a with dimensions.
constexpr std::string_view tensors[] = {
    "fdffffffff", "dddddddddd", "fdhfhhhhhh", "fdfggggggg", "fdhgllllll",
    "fdhgliiiii", "fdhglissss", "fdhglisysy", "fdhglissuu", "fdhglisyub",
};
// b without dimensions.
constexpr std::string_view scalars[] = {
    "ffffffffff", "dddddddddd", "hhhhhhhhhh", "gggggggggg", "fdhgllllll",
    "fdhgiiiiii", "fdhgssssss", "fdhgyyyyyy", "fdhguuuuuu", "fdhglisyub",
};
// b a number: True, 1, 1.5. The same for a without dimensions.
constexpr std::string_view numbers[] = {
    "fff", "ddd", "hhh", "ggg", "llf", "iif", "ssf", "yyf", "uuf", "blf",
};

char letter_of(Dtype dtype) { return letters[static_cast<size_t>(dtype)]; }

struct Kind {
  Dims dims;
  bool weak;
};
const Kind with_dims{{2}, false}, without_dims{{}, false}, number{{}, true};

char combined(Dtype a, const Kind& kind_a, Dtype b, const Kind& kind_b) {
  Emitter emitter;
  ResultType type;
  type.add(emitter.name_value("%a", {a, kind_a.dims}), kind_a.weak);
  type.add(emitter.name_value("%b", {b, kind_b.dims}), kind_b.weak);
  return letter_of(type.dtype());
}

void expect_table(const Kind& rows, const Kind& columns, std::initializer_list<Dtype> column_dtypes,
                  const std::string_view* table) {
  for (size_t i = 0; i < std::size(dtypes); ++i) {
    size_t j = 0;
    for (Dtype column : column_dtypes) {
      EXPECT_EQ(combined(dtypes[i], rows, column, columns), table[i][j])
          << name_of(dtypes[i]) << " with " << name_of(column);
      ++j;
    }
  }
}

constexpr std::initializer_list<Dtype> all = {Dtype::f32, Dtype::f64,    Dtype::f16, Dtype::bf16,
                                              Dtype::i64, Dtype::i32,    Dtype::i16, Dtype::i8,
                                              Dtype::u8,  Dtype::boolean};

TEST(ResultType, tensors_with_dimensions_promote_each_other) {
  expect_table(with_dims, with_dims, all, tensors);
}

TEST(ResultType, a_tensor_without_dimensions_gives_way) {
  expect_table(with_dims, without_dims, all, scalars);
}

TEST(ResultType, a_number_gives_way_to_a_tensor) {
  expect_table(with_dims, number, {Dtype::boolean, Dtype::i64, Dtype::f64}, numbers);
  expect_table(with_dims, number, {Dtype::boolean, Dtype::i64, Dtype::f32}, numbers);
}

TEST(ResultType, a_number_gives_way_to_a_tensor_without_dimensions) {
  expect_table(without_dims, number, {Dtype::boolean, Dtype::i64, Dtype::f64}, numbers);
}

}  // namespace
}  // namespace ivme::xla
