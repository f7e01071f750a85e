// How a launch ends when something goes wrong, and that nothing stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "launch/failure.h"
#include "launch/tool.h"

namespace ivme::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

Tool::Setup marked(const std::string& word) { return {.environment = {word + "=1"}}; }

// Waits until `count` processes carry the word: the tool, its guardian, the ranks and what they started.
bool all_up(const std::string& word, int count) {
  for (int i = 0; i < 500; ++i) {
    if (processes_with(word) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(LaunchFailure, the_first_rank_to_fail_stops_the_others_and_its_code_and_stderr_are_the_last_word) {
  const auto word = unique_word();
  const auto result = ivme({"launch", "-n", "3", "sh", "-c",
                            "[ $RANK = 1 ] && { echo working; echo the reason >&2; exit 7; }; sleep 60"},
                           marked(word));
  EXPECT_EQ(result.code, 7);
  EXPECT_LT(result.seconds, 2);
  EXPECT_THAT(result.err, HasSubstr("error: rank 1 (pid "));
  EXPECT_THAT(result.err, HasSubstr("ended with exit code 7 after "));
  EXPECT_THAT(result.err, EndsWith("Its last 2 lines:\n  working\n  the reason\n"));
  EXPECT_TRUE(all_gone(word, 0));
}

TEST(LaunchFailure, a_backtrace_does_not_push_the_reason_out_of_the_last_lines) {
  const auto result =
      ivme({"launch", "-n", "2", "sh", "-c",
            "[ $RANK = 1 ] && { echo the reason >&2; echo 'Exception raised from f at x.cpp:1' >&2;"
            " for i in $(seq 20); do echo \"frame #$i: g\" >&2; done; exit 7; }; sleep 60"});
  EXPECT_THAT(result.err, EndsWith("Its last line:\n  the reason\n"));
}

TEST(LaunchFailure, ranks_that_ignore_the_request_to_end_are_killed_within_two_seconds) {
  const auto word = unique_word();
  const auto result = ivme({"launch", "-n", "3", "sh", "-c",
                            "[ $RANK = 2 ] && exit 9; trap '' TERM INT; while :; do sleep 1; done"},
                           marked(word));
  EXPECT_EQ(result.code, 9);
  EXPECT_LT(result.seconds, 2);
  EXPECT_TRUE(all_gone(word, 0));
}

TEST(LaunchFailure, a_rank_ended_by_a_signal_is_named_with_a_likely_reason) {
  const auto result = ivme({"launch", "-n", "2", "sh", "-c", "[ $RANK = 1 ] && kill -9 $$; sleep 60"});
  EXPECT_EQ(result.code, 137);
  EXPECT_LT(result.seconds, 2);
  EXPECT_THAT(result.err, HasSubstr("ended by signal 9 (SIGKILL)"));
  EXPECT_THAT(result.err, HasSubstr("likely out of memory"));
  EXPECT_EQ(ivme({"launch", "sh", "-c", "kill -SEGV $$"}).code, 139);
}

TEST(LaunchFailure, a_rank_killed_in_mid_work_from_outside_ends_all) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "2", "--tee", "sh", "-c", "echo pid $$ of $RANK; sleep 60"}, marked(word));
  ASSERT_TRUE(tool.shows("of 1\n"));
  const size_t at = tool.out().find("[rank 1] pid ");
  ASSERT_NE(at, std::string::npos);
  ::kill(std::stoi(tool.out().substr(at + 13)), SIGKILL);
  const auto result = tool.wait();
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("error: rank 1 "));
  EXPECT_TRUE(all_gone(word, 0));
}

TEST(LaunchFailure, all_output_comes_before_the_report_and_its_last_lines_are_those_of_the_failing_rank) {
  const auto result =
      ivme({"launch", "-n", "2", "--tee", "sh", "-c",
            "if [ $RANK = 1 ]; then seq 1 500 >&2; exit 3; fi; seq 1 50000; printf unfinished; sleep 60"},
           {.merged = true});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(result.out.ends_with(
      "Its last 10 lines:\n  491\n  492\n  493\n  494\n  495\n  496\n  497\n  498\n  499\n  500\n"));
  EXPECT_NE(result.out.find("\nerror: rank 1"), std::string::npos);
  EXPECT_NE(result.out.find("\n50000\n"), std::string::npos);
  EXPECT_NE(result.out.find("\nunfinished"), std::string::npos);
}

TEST(LaunchFailure, a_rank_that_only_lost_its_connection_is_not_blamed_though_it_ended_first) {
  const auto result = ivme({"launch", "-n", "2", "sh", "-c",
                            "if [ $RANK = 0 ]; then echo 'recv: Connection reset by peer' >&2; exit 1; fi;"
                            "sleep 0.1; echo 'loss is not finite' >&2; exit 4"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, EndsWith("loss is not finite\n"));
  EXPECT_THAT(result.err, HasSubstr("error: rank 1"));
}

TEST(LaunchFailure, of_two_failures_the_first_is_blamed) {
  const auto result =
      ivme({"launch", "-n", "2", "sh", "-c", "[ $RANK = 1 ] || sleep 0.1; exit $((10 + RANK))"});
  EXPECT_EQ(result.code, 11);
}

TEST(LaunchFailure, of_failures_seen_together_a_signal_is_the_cause) {
  launch::Ending by_code{.rank = 0, .pid = 1, .status = 1 << 8, .look = 3};
  launch::Ending by_signal = by_code;
  by_signal.rank = 1;
  by_signal.status = SIGSEGV;
  EXPECT_EQ(launch::culprit({by_code, by_signal})->rank, 1);
  by_signal.look = 4;
  EXPECT_EQ(launch::culprit({by_code, by_signal})->rank, 0);
  by_code.stopped = by_signal.stopped = true;
  EXPECT_EQ(launch::culprit({by_code, by_signal}), nullptr);
}

TEST(LaunchFailure, a_rank_may_end_well_before_the_others) {
  const auto result = ivme({"launch", "-n", "2", "sh", "-c", "[ $RANK = 1 ] || { sleep 0.6; echo done; }"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_EQ(result.err, "");
}

TEST(LaunchEnd, ctrl_c_and_sigterm_end_all_ranks) {
  for (const auto& [signal, code] :
       {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
    const auto word = unique_word();
    Tool tool({"launch", "-n", "2", "sh", "-c", "sleep 60 & echo up; wait"}, marked(word));
    ASSERT_TRUE(tool.shows("up\n") && all_up(word, 6));
    tool.send(signal);
    const auto result = tool.wait();
    EXPECT_EQ(result.code, code);
    EXPECT_THAT(result.err, Not(HasSubstr("error")));
    EXPECT_TRUE(all_gone(word, 0));
  }
}

TEST(LaunchEnd, a_program_may_use_ctrl_c_to_end_in_order) {
  Tool tool({"launch", "sh", "-c", "trap 'echo saved; exit 0' INT; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(tool.shows("up\n"));
  tool.send(SIGINT);
  const auto result = tool.wait();
  EXPECT_EQ(result.code, 130);
  EXPECT_EQ(result.out, "up\nsaved\n");
}

TEST(LaunchEnd, a_second_ctrl_c_kills_at_once) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "2", "sh", "-c", "trap '' INT TERM; echo up; while :; do sleep 0.1; done"},
            marked(word));
  ASSERT_TRUE(tool.shows("up\n") && all_up(word, 4));
  const auto begin = std::chrono::steady_clock::now();
  tool.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  tool.send(SIGINT);
  EXPECT_EQ(tool.wait().code, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(800));
  EXPECT_TRUE(all_gone(word, 0));
}

TEST(LaunchEnd, no_orphan_survives_a_killed_launcher) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "3", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"},
            marked(word));
  ASSERT_TRUE(tool.shows("up\n") && all_up(word, 5));
  tool.send(SIGKILL);
  EXPECT_EQ(tool.wait().code, -SIGKILL);
  EXPECT_TRUE(all_gone(word, 2));
}

TEST(LaunchEnd, no_grandchild_survives_a_killed_launcher_not_even_in_a_session_of_its_own) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "2", "sh", "-c",
             "sh -c 'sleep 60; true' & setsid sh -c 'sleep 60; true' & echo up; wait"},
            marked(word));
  ASSERT_TRUE(tool.shows("up\n") && all_up(word, 12));
  tool.send(SIGKILL);
  tool.wait();
  EXPECT_TRUE(all_gone(word, 2));
}

TEST(LaunchEnd, ranks_and_what_they_started_end_even_if_the_guardian_is_killed) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "2", "sh", "-c", "sleep 60 & echo up; wait"}, marked(word));
  ASSERT_TRUE(tool.shows("up\n") && all_up(word, 6));
  const int guardian = process_named("launch-guard", word);
  ASSERT_GT(guardian, 0);
  ::kill(guardian, SIGKILL);
  const auto result = tool.wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("guardian process was killed"));
  EXPECT_TRUE(all_gone(word, 1));
}

TEST(LaunchEnd, what_ended_ranks_left_running_is_ended_too) {
  const auto word = unique_word();
  const auto result =
      ivme({"launch", "-n", "2", "sh", "-c", "setsid sh -c 'sleep 60; true' & exit 0"}, marked(word));
  EXPECT_EQ(result.code, 0);
  EXPECT_LT(result.seconds, 5);
  EXPECT_TRUE(all_gone(word, 0));
}

TEST(LaunchEnd, a_reader_that_does_not_read_cannot_keep_ctrl_c_from_ending_all) {
  const auto word = unique_word();
  Tool tool({"launch", "-n", "1", "sh", "-c", "yes"}, marked(word));
  ASSERT_TRUE(all_up(word, 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  tool.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(processes_with(word), 0);
  EXPECT_EQ(tool.wait().code, 130);
}

}  // namespace
}  // namespace ivme::testing
