#include "accelerator/keyed_dropout.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/feature_dropout.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "ivme/seed.h"

namespace ivme {
namespace {

at::Tensor mask(std::shared_ptr<RandomPlace> place, at::IntArrayRef sizes, const RowsOfRank& rows = {}) {
  KeyedDropout keyed(std::move(place), rows);
  return at::dropout(at::ones(sizes), 0.5, true);
}

TEST(KeyedDropout, a_mask_depends_on_seed_step_and_place_in_the_step) {
  set_seed(3);
  auto place = std::make_shared<RandomPlace>();
  auto first = mask(place, {8, 8}), second = mask(place, {8, 8});
  EXPECT_NEAR(first.sum().item<double>(), 64, 4 * 8);  // 2 where kept; 4 standard deviations
  EXPECT_FALSE(at::equal(first, second));
  place->end_step();
  EXPECT_FALSE(at::equal(mask(place, {8, 8}), first));
  set_seed(3);
  place->end_step();
  EXPECT_TRUE(at::equal(mask(place, {8, 8}), first));
  EXPECT_TRUE(at::equal(mask(place, {8, 8}), second));
  set_seed(4);
  place->end_step();
  EXPECT_FALSE(at::equal(mask(place, {8, 8}), first));
}

TEST(KeyedDropout, ranks_draw_their_rows_of_the_whole_mask) {
  set_seed(3);
  auto of_rank = [](int rank, int64_t rows) {
    return mask(std::make_shared<RandomPlace>(), {rows, 5}, {.rank = rank, .rows = rows, .full = 4});
  };
  auto all = mask(std::make_shared<RandomPlace>(), {12, 5});
  EXPECT_TRUE(at::equal(of_rank(0, 4), all.narrow(0, 0, 4)));
  EXPECT_TRUE(at::equal(of_rank(2, 4), all.narrow(0, 8, 4)));
  EXPECT_TRUE(at::equal(of_rank(2, 1), all.narrow(0, 8, 1)));  // a short last batch
}

TEST(KeyedDropout, memory_formats_and_dtypes_do_not_matter) {
  set_seed(3);
  auto plain = mask(std::make_shared<RandomPlace>(), {4, 6, 3, 2});
  KeyedDropout keyed(std::make_shared<RandomPlace>(), {});
  auto last = at::ones({4, 6, 3, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(at::equal(at::dropout(last, 0.5, true), plain));
  KeyedDropout again(std::make_shared<RandomPlace>(), {});
  EXPECT_TRUE(at::equal(at::dropout(last.to(at::kBFloat16), 0.5, true).to(at::kFloat), plain));
}

TEST(KeyedDropout, torchs_generator_is_left_alone_and_used_again_afterwards) {
  at::manual_seed(3);
  auto expected = at::rand({4});
  at::manual_seed(3);
  mask(std::make_shared<RandomPlace>(), {100});
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
  at::manual_seed(3);
  auto plain = at::dropout(at::ones({100}), 0.5, true);
  at::manual_seed(3);
  EXPECT_TRUE(at::equal(at::dropout(at::ones({100}), 0.5, true), plain));
}

TEST(KeyedDropout, gradients_pass_where_values_do_and_the_fused_operator_agrees) {
  set_seed(3);
  auto x = at::ones({50}).requires_grad_();
  at::Tensor kept;
  {
    KeyedDropout keyed(std::make_shared<RandomPlace>(), {});
    kept = at::dropout(x, 0.25, true);
  }
  kept.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), kept.detach()));
  KeyedDropout keyed(std::make_shared<RandomPlace>(), {});
  auto y = at::ones({50}).requires_grad_();
  auto [fused, where] = at::native_dropout(y, 0.25, true);
  EXPECT_TRUE(at::equal(fused.detach(), kept.detach()));
  EXPECT_TRUE(at::equal(where, kept.detach() > 0));
  fused.sum().backward();
  EXPECT_TRUE(at::equal(y.grad(), kept.detach()));
}

}  // namespace
}  // namespace ivme
