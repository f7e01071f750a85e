// The command line: bad input, help, and `ivme shards`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/batch_shard.h"
#include "launch/tool.h"
#include "support/nearest.h"

namespace ivme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct BadInput {
  std::vector<std::string> arguments;
  std::string error;
};

TEST(CommandLine, bad_input_is_answered_with_a_sentence_and_exit_code_2) {
  const BadInput cases[] = {
      {{"lanch"}, "did you mean 'launch'?"},
      {{"launch"}, "no program was named"},
      {{"launch", "--num_proceses", "2", "true"}, "did you mean '--num_processes'?"},
      {{"launch", "--mixed-precison=bf16", "true"}, "did you mean '--mixed_precision'?"},
      {{"launch", "--num_processes", "0", "true"}, "--num_processes 0 was asked"},
      {{"launch", "-n", "-3", "true"}, "--num_processes -3 was asked"},
      {{"launch", "-n", "two", "true"}, "'two' is not a whole number"},
      {{"launch", "-n", "99999999999", "true"}, "out of range"},
      {{"launch", "-n"}, "needs a value"},
      {{"launch", "--mixed_precision", "bf61", "true"},
       "unknown precision 'bf61'; did you mean 'bf16'? (no, bf16, fp16)"},
      {{"launch", "--gradient_accumulation_steps", "0", "true"}, "must be at least 1"},
      {{"launch", "--num_cpu_threads_per_process", "0", "true"}, "must be at least 1"},
      {{"launch", "--main_process_port", "70000", "true"}, "70000 is not a port"},
      {{"launch", "--cpu", "--gpu", "true"}, "both"},
      {{"launch", "./no_such_program"}, "'./no_such_program' is not there"},
      {{"launch", "no_such_program"}, "no program 'no_such_program' is on PATH"},
      {{"launch", "/"}, "is a directory"},
      {{"launch", "/etc/passwd"}, "is not executable"},
      {{"launch", "--log_dir", "/etc/passwd/logs", "true"}, "cannot be made"},
      {{"shards", "--batch_size", "2"}, "--length is missing"},
      {{"shards", "--length", "8", "--batch_size", "0"}, "batch size of 0"},
      {{"shards", "--length", "8", "--num_processes", "0"}, "at least 1"},
      {{"shards", "--length", "8", "--batch_size", "6", "-n", "4", "--split_batches"}, "batch size of 6"},
      {{"shards", "--lenght", "8"}, "did you mean '--length'?"},
      {{"shards", "--length", "8", "more"}, "unexpected word 'more'"},
  };
  for (const auto& bad : cases) {
    const auto result = ivme(bad.arguments);
    EXPECT_EQ(result.code, 2) << bad.error;
    EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr(bad.error), HasSubstr("\n  try: ")));
    EXPECT_EQ(result.out, "");
  }
}

TEST(CommandLine, a_gpu_launch_without_gpus_or_with_too_few_is_refused) {
  EXPECT_THAT(ivme({"launch", "--gpu", "true"}, {.environment = {"CUDA_VISIBLE_DEVICES="}}).err,
              HasSubstr("no GPU was found"));
  const auto result =
      ivme({"launch", "--gpu", "-n", "3", "true"}, {.environment = {"CUDA_VISIBLE_DEVICES=0,1"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("3 processes asked, 2 GPUs found\n  try: --num_processes 2, or --cpu"));
}

TEST(CommandLine, a_gpu_launch_starts_a_process_per_gpu) {
  const auto result = ivme({"launch", "--gpu", "sh", "-c", "echo $WORLD_SIZE $IVME_DEVICE"},
                           {.environment = {"CUDA_VISIBLE_DEVICES=0,3,5"}});
  EXPECT_EQ(result.out, "3 cuda\n");
}

TEST(CommandLine, a_file_that_is_no_program_is_refused_with_a_sentence) {
  const auto path = std::filesystem::temp_directory_path() / unique_word();
  std::ofstream(path) << "just words\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const auto result = ivme({"launch", "-n", "2", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("could not be started: Exec format error"));
  std::filesystem::remove(path);
}

TEST(CommandLine, a_misspelt_program_is_answered_with_the_one_that_is_there) {
  const auto folder = std::filesystem::temp_directory_path() / unique_word();
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "train") << "#!/bin/sh\n";
  std::filesystem::permissions(folder / "train", std::filesystem::perms::owner_all);
  EXPECT_THAT(ivme({"launch", folder / "trian"}).err, HasSubstr("try: " + (folder / "train").string()));
  std::filesystem::remove_all(folder);
}

TEST(CommandLine, alone_it_lists_the_commands_and_each_explains_itself) {
  EXPECT_THAT(ivme({}).out,
              AllOf(HasSubstr("launch"), HasSubstr("shards"), HasSubstr("Example"), HasSubstr("docs")));
  const auto help = ivme({"launch", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(StartsWith("usage: ivme launch"), HasSubstr("--num_processes N"),
                              HasSubstr("ACCELERATE_MIXED_PRECISION"), HasSubstr("Default: ")));
  EXPECT_THAT(ivme({"shards", "-h"}).out, StartsWith("usage: ivme shards"));
}

TEST(CommandLine, the_version_is_told_in_a_moment) {
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const auto result = ivme({"--version"});
    EXPECT_THAT(result.out, ::testing::MatchesRegex("ivme [0-9]+\\.[0-9]+\\.[0-9]+\n"));
    best = std::min(best, result.seconds);
  }
  EXPECT_LT(best, 0.02);
}

TEST(Shards, json_is_what_the_library_deals_in_every_mode) {
  for (int mode = 0; mode < 8; ++mode) {
    const ShardOptions options{.length = 21,
                               .batch_size = 6,
                               .num_processes = 3,
                               .split_batches = (mode & 1) != 0,
                               .even_batches = (mode & 2) == 0,
                               .drop_last = (mode & 4) != 0};
    std::vector<std::string> arguments = {"shards", "--length",        "21", "--batch-size",
                                          "6",      "--num_processes", "3",  "--json"};
    if (options.split_batches) arguments.push_back("--split_batches");
    if (!options.even_batches) arguments.push_back("--no-even-batches");
    if (options.drop_last) arguments.push_back("--drop_last");
    nlohmann::ordered_json expected;
    for (int rank = 0; rank < 3; ++rank) {
      const BatchShard shard(options, rank);
      expected["ranks"][rank] = nlohmann::json::array();
      for (int64_t k = 0; k < shard.size(); ++k) expected["ranks"][rank].push_back(shard.positions(k));
    }
    expected["remainder"] = remainder(options);
    expected["global_batch_size"] = global_batch_size(options);
    EXPECT_EQ(ivme(arguments).out, expected.dump() + "\n");
  }
}

TEST(Shards, an_empty_epoch_has_ranks_without_batches) {
  EXPECT_EQ(ivme({"shards", "--length", "0", "--batch_size", "2", "-n", "2", "--json"}).out,
            "{\"ranks\":[[],[]],\"remainder\":0,\"global_batch_size\":4}\n");
}

TEST(Shards, the_table_shows_a_row_per_step) {
  const auto table = lines(ivme({"shards", "--length", "10", "--batch_size", "4", "-n", "2"}).out);
  ASSERT_EQ(table.size(), 4u);
  EXPECT_THAT(table[2], AllOf(HasSubstr("8-9 0-1"), HasSubstr("2-5")));
}

TEST(Nearest, finds_a_slip_of_the_finger_and_nothing_far_off) {
  const std::vector<std::string> choices = {"no", "bf16", "fp16"};
  EXPECT_EQ(nearest("bf61", choices), "bf16");
  EXPECT_EQ(nearest("BF16", choices), "bf16");
  EXPECT_EQ(nearest("fp1", choices), "fp16");
  EXPECT_EQ(nearest("float64", choices), std::nullopt);
  EXPECT_EQ(nearest("", choices), std::nullopt);
  EXPECT_EQ(nearest("--num-proc", std::vector<std::string>{"--num_processes", "--cpu"}), "--num_processes");
  EXPECT_EQ(unknown_word("precision", "x", choices), "unknown precision 'x' (no, bf16, fp16)");
}

}  // namespace
}  // namespace ivme::testing
