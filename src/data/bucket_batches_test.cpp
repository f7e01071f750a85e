#include "data/bucket_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ivme::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<int64_t> order = {8, 7, 6, 5, 4, 3, 2, 1, 0};
const std::vector<int> bucket_of = {0, 1, 1, 1, 0, 1, 0, 0, 0};  // by sample: {0 4 6 7 8}, {1 2 3 5}

std::vector<std::vector<int64_t>> samples(const std::vector<GlobalBatch>& batches) {
  std::vector<std::vector<int64_t>> all;
  for (const auto& batch : batches) all.push_back(batch.samples);
  return all;
}

TEST(BucketBatches, a_batch_comes_when_it_is_full_and_short_ones_last) {
  auto batches = bucket_batches(order, bucket_of, {.size = 3});
  EXPECT_THAT(samples(batches),
              ElementsAre(ElementsAre(8, 7, 6), ElementsAre(5, 3, 2), ElementsAre(4, 0), ElementsAre(1)));
  EXPECT_EQ(batches[0].real, 3);
  EXPECT_EQ(batches[3].real, 1);
}

TEST(BucketBatches, short_ones_are_completed_from_their_own_buckets_beginning) {
  auto batches = bucket_batches(order, bucket_of, {.size = 3, .complete = true});
  EXPECT_THAT(samples(batches), ElementsAre(ElementsAre(8, 7, 6), ElementsAre(5, 3, 2), ElementsAre(4, 0, 8),
                                            ElementsAre(1, 5, 3)));
  EXPECT_EQ(batches[2].real, 2);
  auto small = bucket_batches(std::vector<int64_t>{4}, bucket_of, {.size = 3, .complete = true});
  EXPECT_THAT(samples(small), ElementsAre(ElementsAre(4, 4, 4)));
}

TEST(BucketBatches, short_ones_are_left_out_under_drop_last) {
  EXPECT_EQ(bucket_batches(order, bucket_of, {.size = 3, .drop_last = true}).size(), 2u);
}

TEST(BucketBatches, a_batch_is_cut_into_the_ranks_parts) {
  const GlobalBatch full{{1, 2, 3, 4}, 4}, left{{1, 2, 3}, 3};
  EXPECT_THAT(part_of_rank(full, 4, 2, 1), ElementsAre(3, 4));
  EXPECT_THAT(part_of_rank(left, 4, 2, 0), ElementsAre(1, 2));
  EXPECT_THAT(part_of_rank(left, 4, 2, 1), ElementsAre(3));
  EXPECT_THAT(part_of_rank(left, 8, 2, 1), IsEmpty());
}

}  // namespace
}  // namespace ivme::detail
