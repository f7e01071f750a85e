#pragma once
#include "ivme/collate.h"

// The examples' data, kept small in memory; a batch is made when it is asked for. Loading throws ivme::Error
// when a file is missing or damaged.
namespace examples {

// Grey images and their classes.
struct Images {
  at::Tensor pixels;                       // uint8 [n, height, width]
  at::Tensor labels;                       // uint8 [n]
  at::Tensor (*scale)(const at::Tensor&);  // uint8 to float32

  int64_t size() const { return labels.size(0); }
  // data float32 [B, 1, height, width], target int64 [B]
  ivme::Batch get_batch(const std::vector<int64_t>& indices) const;
};

struct ImageSplits {
  Images train, test;
};
// "fashion": Fashion-MNIST, 60000 and 10000 of 28 x 28, from idx files. "digits": 1437 and 360 of 8 x 8, kept
// in data/.
ImageSplits load_images(const std::string& dataset, const std::string& folder);

// A text as blocks of 64 characters; the target of each character is the next one.
struct Text {
  at::Tensor inputs, targets;  // int64 [n, 64]

  int64_t size() const { return inputs.size(0); }
  ivme::Batch get_batch(const std::vector<int64_t>& indices) const;  // int64 [B, 64] both
};

struct TextSplits {
  Text train, test;
  int64_t vocabulary;  // distinct characters
};
// The first 200000 bytes of Moby Dick, kept in data/: 90 % to train on, the rest to test.
TextSplits load_text(const std::string& folder);

}  // namespace examples
