#include "support/datasets.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "ivme/error.h"
#include "support/files.h"

namespace examples {
namespace {

constexpr int64_t block = 64;

// Mean and spread of Fashion-MNIST's training pixels.
at::Tensor standardize(const at::Tensor& pixels) { return ((pixels.to(at::kFloat) / 255) - 0.2860) / 0.3530; }
at::Tensor sixteenths(const at::Tensor& pixels) { return pixels.to(at::kFloat) / 16; }

Images read_images(const std::string& folder, const std::string& part) {
  const std::string pixels = folder + "/" + part + "-images-idx3-ubyte.gz";
  const std::string labels = folder + "/" + part + "-labels-idx1-ubyte.gz";
  Images images{read_idx(pixels, 3), read_idx(labels, 1), standardize};
  if (images.pixels.size(0) != images.labels.size(0))
    throw ivme::Error(labels + " holds " + std::to_string(images.labels.size(0)) + " labels for " +
                      std::to_string(images.pixels.size(0)) + " images. Get both files anew.");
  if (images.labels.max().item<int64_t>() > 9)
    throw ivme::Error(labels + " names classes beyond 9. It is not the file for these images; get it anew.");
  return images;
}

Text blocks_of(const at::Tensor& characters) {
  const int64_t count = (characters.size(0) - 1) / block;
  return {characters.narrow(0, 0, count * block).view({count, block}),
          characters.narrow(0, 1, count * block).view({count, block})};
}

}  // namespace

ivme::Batch Images::get_batch(const std::vector<int64_t>& indices) const {
  const at::Tensor index = ivme::detail::tensor_of(indices);
  return {scale(pixels.index_select(0, index)).unsqueeze(1), labels.index_select(0, index).to(at::kLong)};
}

ImageSplits load_images(const std::string& dataset, const std::string& folder) {
  if (dataset == "fashion") {
    const std::string from = package_folder(folder, "fashion-mnist");
    return {read_images(from, "train"), read_images(from, "t10k")};
  }
  constexpr int64_t train = 1437;
  const std::string file = repository_folder(folder) + "/digits.csv.gz";
  const at::Tensor table = read_csv(file, 65);
  if (table.size(0) <= train)
    throw ivme::Error(file + " should hold 1797 digits, but holds " + std::to_string(table.size(0)) +
                      ". Get it anew.");
  const at::Tensor pixels = table.narrow(1, 0, 64).reshape({-1, 8, 8});
  const at::Tensor labels = table.select(1, 64).contiguous();
  const int64_t test = table.size(0) - train;
  return {{pixels.narrow(0, 0, train), labels.narrow(0, 0, train), sixteenths},
          {pixels.narrow(0, train, test), labels.narrow(0, train, test), sixteenths}};
}

ivme::Batch Text::get_batch(const std::vector<int64_t>& indices) const {
  const at::Tensor index = ivme::detail::tensor_of(indices);
  return {inputs.index_select(0, index), targets.index_select(0, index)};
}

TextSplits load_text(const std::string& folder) {
  const std::string file = repository_folder(folder) + "/moby200k.txt.gz";
  const std::string text = read_text(file);
  const int64_t size = static_cast<int64_t>(text.size());
  const int64_t train = size / 10 * 9;
  if (size - train <= block)
    throw ivme::Error(file + " should hold a text of 200000 characters, but holds " + std::to_string(size) +
                      ". Get it anew.");
  std::array<int64_t, 256> id{};  // of each byte, in the order of bytes
  for (unsigned char c : text) id[c] = 1;
  int64_t vocabulary = 0;
  for (int64_t& entry : id) entry = entry ? vocabulary++ : 0;
  at::Tensor characters = at::empty({size}, at::kLong);
  std::transform(text.begin(), text.end(), characters.mutable_data_ptr<int64_t>(),
                 [&](unsigned char c) { return id[c]; });
  return {blocks_of(characters.narrow(0, 0, train)), blocks_of(characters.narrow(0, train, size - train)),
          vocabulary};
}

}  // namespace examples
