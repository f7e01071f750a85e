// The two loops that the README compares are programs, and both train; so does the LSTM of docs/tpu.md.
#include <gtest/gtest.h>

#include <regex>

#include "examples/run.h"
#include "support/files.h"

namespace examples::testing {
namespace {

// libtorch reads MNIST's files unpacked.
void unpack_fashion_mnist(const Folder& folder) {
  const std::string from = package_folder("", "fashion-mnist");
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    write_file(folder.path(name), read_text(from + "/" + name + ".gz"));
}

std::vector<double> losses(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::regex line("epoch [01], loss ([0-9.]+)\n");
  std::vector<double> found;
  for (std::sregex_iterator it(outcome.out.begin(), outcome.out.end(), line), end; it != end; ++it)
    found.push_back(std::stod((*it)[1]));
  return found;
}

TEST(Readme, both_loops_train_and_one_process_prints) {
  const Folder folder;
  unpack_fashion_mnist(folder);
  for (const Outcome& outcome :
       {alone("plain_libtorch", {folder.path()}), launch(1, "readme_loop", {folder.path()}),
        launch(2, "readme_loop", {folder.path()})}) {
    const auto found = losses(outcome);
    ASSERT_EQ(found.size(), 2u) << outcome.out;
    EXPECT_LT(found[1], 1.0);
  }
}

TEST(RaggedLstm, trains_on_sentences_of_any_length_and_in_buckets) {
  for (const Words& flags : {Words{}, Words{"--buckets"}}) {
    const Outcome outcome = launch(1, "ragged_lstm", flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::regex end("40/40 .*loss ([0-9.]+)");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(outcome.err, found, end)) << outcome.err;
    EXPECT_LT(std::stod(found[1]), 3.5);  // 4.85 = log 128 when nothing is known
  }
}

}  // namespace
}  // namespace examples::testing
