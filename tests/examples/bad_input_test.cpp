#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "examples/run.h"
#include "support/files.h"

namespace examples::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string images(uint32_t count) {
  return number(0x803) + number(count) + number(28) + number(28) + std::string(count * 784, '\7');
}
std::string labels(uint32_t count, char label = 3) {
  return number(0x801) + number(count) + std::string(count, label);
}

// A data folder of 8 training images and 4 test images; idx files may be plain under their usual names.
class BadData : public ::testing::Test {
 protected:
  BadData() {
    write("train-images-idx3", images(8));
    write("train-labels-idx1", labels(8));
    write("t10k-images-idx3", images(4));
    write("t10k-labels-idx1", labels(4));
  }
  void write(const std::string& name, const std::string& bytes) {
    write_file(folder_.path(name + "-ubyte.gz"), bytes);
  }
  Words flags(Words more = {}) const {
    more.insert(more.end(), {"--data", folder_.path(), "--batch_size", "2"});
    return more;
  }
  void expect_error(int code, const ::testing::Matcher<std::string>& message, const Words& given) {
    for (int processes : {1, 2}) {
      const Outcome outcome = launch(processes, "fashion_mnist", given);
      EXPECT_EQ(outcome.code, code) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), message));
    }
  }
  Folder folder_;
};

TEST_F(BadData, good_data_of_any_size_trains) {
  const Outcome outcome = launch(2, "fashion_mnist", flags());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("test accuracy "));
}

TEST_F(BadData, a_missing_file_is_named) {
  std::filesystem::remove(folder_.path("t10k-labels-idx1-ubyte.gz"));
  expect_error(1, AllOf(HasSubstr("t10k-labels-idx1-ubyte.gz cannot be read"), HasSubstr("--data DIR")),
               flags());
}

TEST_F(BadData, a_file_cut_short_is_named) {
  write("train-images-idx3", images(8).substr(0, 1000));
  expect_error(
      1, HasSubstr("train-images-idx3-ubyte.gz should hold 6272 bytes after its header, but ends after 984"),
      flags());
}

TEST_F(BadData, a_header_cut_short_is_named) {
  write("train-labels-idx1", labels(8).substr(0, 6));
  expect_error(1, HasSubstr("train-labels-idx1-ubyte.gz ends within the header"), flags());
}

TEST_F(BadData, a_gzip_file_cut_short_is_named) {
  std::ifstream whole(package_folder("", "fashion-mnist") + "/train-images-idx3-ubyte.gz", std::ios::binary);
  std::string start(100000, '\0');
  whole.read(start.data(), static_cast<std::streamsize>(start.size()));
  write("train-images-idx3", start);
  expect_error(1, HasSubstr("train-images-idx3-ubyte.gz cannot be unpacked"), flags());
}

TEST_F(BadData, a_wrong_magic_number_is_shown) {
  write("train-images-idx3", labels(8));
  expect_error(1, AllOf(HasSubstr("train-images-idx3-ubyte.gz"), HasSubstr("magic number is 0x00000801")),
               flags());
}

TEST_F(BadData, an_empty_dataset_is_refused) {
  write("train-images-idx3", images(0));
  write("train-labels-idx1", labels(0));
  expect_error(1, HasSubstr("train-images-idx3-ubyte.gz holds no samples"), flags({"--max_batches", "3"}));
}

TEST_F(BadData, a_header_that_claims_too_much_is_refused) {
  write("train-images-idx3", number(0x803) + number(0xffffffff) + number(0xffffffff) + number(0xffffffff));
  expect_error(1, HasSubstr("header is damaged"), flags());
}

TEST_F(BadData, as_many_labels_as_images_are_needed) {
  write("train-labels-idx1", labels(7));
  expect_error(1, HasSubstr("holds 7 labels for 8 images"), flags());
}

TEST_F(BadData, labels_beyond_the_classes_are_refused) {
  write("train-labels-idx1", labels(8, 10));
  expect_error(1, HasSubstr("names classes beyond 9"), flags());
}

TEST_F(BadData, a_batch_size_below_one_is_refused) {
  expect_error(1, HasSubstr("batch size of 0"), {"--data", folder_.path(), "--batch_size", "0"});
}

TEST_F(BadData, a_batch_that_cannot_be_split_evenly_is_refused) {
  const Outcome outcome =
      launch(2, "fashion_mnist", {"--data", folder_.path(), "--batch_size", "3", "--split_batches"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), HasSubstr("split_batches")));
}

TEST_F(BadData, a_text_too_short_for_one_block_is_refused) {
  write_file(folder_.path("moby200k.txt.gz"), "Call me Ishmael.");
  const Outcome outcome = alone("char_lm", {"--data", folder_.path()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("holds 16"));
}

TEST_F(BadData, a_line_of_digits_that_is_not_complete_is_named) {
  write_file(folder_.path("digits.csv.gz"), "1,2,3\n");
  const Outcome outcome = alone("fashion_mnist", {"--dataset", "digits", "--data", folder_.path()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("digits.csv.gz, line 1, should hold 65 numbers"));
}

struct WrongLine {
  std::string name, example;
  Words flags;
  std::string message;
};
void PrintTo(const WrongLine& line, std::ostream* out) { *out << line.name; }

class Usage : public ::testing::TestWithParam<WrongLine> {};

TEST_P(Usage, errors_are_sentences_that_name_the_nearest_valid_word) {
  const Outcome outcome = alone(GetParam().example, GetParam().flags);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), HasSubstr(GetParam().message)));
}

const WrongLine wrong_lines[] = {
    {"unknown_flag", "fashion_mnist", {"--modle", "cnn"}, "there is no flag --modle; the nearest is --model"},
    {"unknown_flag_with_value", "fashion_mnist", {"--bacth-size=3"}, "the nearest is --batch_size"},
    {"unknown_model", "fashion_mnist", {"--model", "cnn_nb"}, "'cnn_nb'; the nearest is 'cnn_bn'"},
    {"unknown_optimizer", "char_lm", {"--optimizer", "adam"}, "the nearest is 'adamw'"},
    {"unknown_precision", "char_lm", {"--mixed_precision", "bf61"}, "the nearest is 'bf16'"},
    {"unknown_scheduler", "fashion_mnist", {"--scheduler", "cosinus"}, "the nearest is 'cosine'"},
    {"not_a_number", "fashion_mnist", {"--lr", "fast"}, "--lr: 'fast' is not a number"},
    {"not_a_whole_number",
     "fashion_mnist",
     {"--batch_size", "2.5"},
     "--batch_size: '2.5' is not a whole number"},
    {"no_batches", "fashion_mnist", {"--max_batches", "0"}, "--max_batches: '0' is below"},
    {"negative_rate", "fashion_mnist", {"--lr", "-1"}, "--lr: '-1' is below"},
    {"missing_value", "fashion_mnist", {"--lr"}, "--lr"},
    {"stray_word", "fashion_mnist", {"cnn"}, "the word 'cnn' belongs to no flag"},
};

INSTANTIATE_TEST_SUITE_P(Line, Usage, ::testing::ValuesIn(wrong_lines),
                         [](const auto& test) { return test.param.name; });

TEST(Flags, dashes_and_underscores_are_alike) {
  const Words rest = {"--dataset", "digits", "--max-batches=3", "--batch-size", "16"};
  Words underscores = {"--dataset", "digits", "--max_batches=3", "--batch_size", "16"};
  const Outcome a = alone("fashion_mnist", rest), b = alone("fashion_mnist", underscores);
  EXPECT_EQ(a.code, 0) << a.err;
  EXPECT_THAT(a.out, HasSubstr("test accuracy "));
  EXPECT_EQ(a.out, b.out);
}

TEST(Flags, half_precision_without_a_gpu_is_refused_with_a_sentence) {
  const Outcome outcome = launch(1, "char_lm", {"--mixed_precision", "fp16", "--max_batches", "1"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), HasSubstr("fp16")));
}

TEST(Flags, help_lists_them_and_succeeds) {
  const Outcome outcome = alone("fashion_mnist", {"--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("--gradient_accumulation_steps"), HasSubstr("mlp|cnn|cnn_bn")));
}

}  // namespace
}  // namespace examples::testing
