#include "support/datasets.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <bit>
#include <sstream>

#include "support/files.h"
#include "support/training.h"

namespace examples {
namespace {

TEST(Images, every_pixel_value_has_the_bits_that_python_computes) {
  const Images images{at::arange(256, at::kByte).reshape({256, 1, 1}), at::arange(256, at::kByte),
                      load_images("fashion", "").train.scale};
  std::vector<int64_t> all(256);
  for (int64_t i = 0; i < 256; ++i) all[i] = i;
  const at::Tensor pixels = images.get_batch(all).data.contiguous();
  std::istringstream lines(read_text(IVME_SOURCE_DIR "/tests/data/reference/fashion_lut.txt"));
  int64_t value = 0;
  uint32_t bits = 0;
  int64_t compared = 0;
  while (lines >> std::dec >> value >> std::hex >> bits) {
    EXPECT_EQ(std::bit_cast<uint32_t>(pixels.const_data_ptr<float>()[value]), bits) << "pixel " << value;
    ++compared;
  }
  EXPECT_EQ(compared, 256);
}

TEST(Images, fashion_mnist_is_complete) {
  const ImageSplits data = load_images("fashion", "");
  EXPECT_EQ(data.train.pixels.sizes(), (std::vector<int64_t>{60000, 28, 28}));
  EXPECT_EQ(data.test.size(), 10000);
  EXPECT_EQ(data.train.labels.select(0, 0).item<int64_t>(), 9);  // an ankle boot
}

TEST(Images, a_batch_has_the_asked_samples_in_the_asked_order) {
  const ImageSplits data = load_images("digits", "");
  EXPECT_EQ(data.train.size(), 1437);
  EXPECT_EQ(data.test.size(), 360);
  const ivme::Batch batch = data.train.get_batch({2, 0});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 1, 8, 8}));
  EXPECT_EQ(batch.target.scalar_type(), at::kLong);
  EXPECT_EQ(batch.target.select(0, 0).item<int64_t>(), 2);
  EXPECT_EQ(batch.target.select(0, 1).item<int64_t>(), 0);
  EXPECT_FLOAT_EQ(batch.data.select(0, 1).select(0, 0).select(0, 0).select(0, 2).item<float>(), 5.0f / 16);
}

TEST(Text, the_target_of_a_letter_is_the_next_one) {
  const TextSplits text = load_text("");
  EXPECT_EQ(text.vocabulary, 80);
  EXPECT_EQ(text.train.size(), 2812);
  EXPECT_EQ(text.test.size(), 312);
  const ivme::Batch batch = text.train.get_batch({7, 8});
  EXPECT_TRUE(batch.data.narrow(1, 1, 63).equal(batch.target.narrow(1, 0, 63)));
  EXPECT_TRUE(batch.target.select(0, 0).select(0, 63).equal(batch.data.select(0, 1).select(0, 0)));
}

TEST(Length, epochs_and_batches_end_the_run_whichever_is_first) {
  Flags flags;
  EXPECT_EQ(batches_to_run(flags, 45), 45);
  flags.max_batches = 200;
  EXPECT_EQ(batches_to_run(flags, 45), 200);
  flags.epochs = 2;
  EXPECT_EQ(batches_to_run(flags, 45), 90);
  flags.max_batches = 60;
  EXPECT_EQ(batches_to_run(flags, 45), 60);
}

}  // namespace
}  // namespace examples
