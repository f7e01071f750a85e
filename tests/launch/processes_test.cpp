// What a launched program finds, and what becomes of its output.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launch/launcher.h"
#include "launch/listener.h"
#include "launch/tool.h"

namespace ivme::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Launch, as_many_cpu_processes_run_as_were_asked_and_each_knows_it) {
  const auto result =
      ivme({"launch", "--cpu", "--num_processes", "2", "--tee", "sh", "-c",
            "echo rank=$RANK local=$LOCAL_RANK num_processes=$WORLD_SIZE of $LOCAL_WORLD_SIZE "
            "$IVME_DEVICE $ACCELERATE_USE_CPU"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(lines(result.out),
              UnorderedElementsAre("rank=0 local=0 num_processes=2 of 2 cpu true",
                                   "[rank 1] rank=1 local=1 num_processes=2 of 2 cpu true"));
}

TEST(Launch, one_process_is_the_default_and_is_told_so_too) {
  const auto result = ivme({"launch", "sh", "-c", "echo $RANK $WORLD_SIZE $MASTER_ADDR $IVME_LAUNCHED"});
  EXPECT_EQ(result.out, "0 1 127.0.0.1 1\n");
}

TEST(Launch, options_reach_the_program_as_environment_and_only_if_given) {
  const std::string print =
      "echo [$ACCELERATE_MIXED_PRECISION] [$ACCELERATE_GRADIENT_ACCUMULATION_STEPS] [$OMP_NUM_THREADS] "
      "[$IVME_DEVICE] [$TORCHELASTIC_USE_AGENT_STORE]";
  EXPECT_EQ(ivme({"launch", "--mixed-precision", "bf16", "--gradient-accumulation-steps=4",
                  "--num_cpu_threads_per_process", "3", "sh", "-c", print})
                .out,
            "[bf16] [4] [3] [] []\n");
  EXPECT_EQ(ivme({"launch", "sh", "-c", print},
                 {.environment = {"OMP_NUM_THREADS=5", "TORCHELASTIC_USE_AGENT_STORE=True",
                                  "ACCELERATE_MIXED_PRECISION=fp16"}})
                .out,
            "[fp16] [] [5] [] []\n");
}

TEST(Launch, arguments_after_the_program_are_its_own) {
  const auto result = ivme({"launch", "-n", "1", "sh", "-c", "printf '<%s>' \"$@\"", "sh", "--num_processes",
                            "9", "-n", "--tee", "--", "", "two words", "--help"});
  EXPECT_EQ(result.out, "<--num_processes><9><-n><--tee><--><><two words><--help>");
}

TEST(Launch, ranks_meet_on_a_socket_that_was_listening_before_they_began) {
  const auto result = ivme({"launch", "-n", "4", IVME_MEET});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "met 3\n");
}

TEST(Launch, a_busy_port_is_replaced_by_a_free_one_and_this_is_said) {
  const auto taken = launch::listen_on_loopback(0);
  const std::string port = std::to_string(taken.port);
  const auto result = ivme({"launch", "--main_process_port", port, "sh", "-c", "echo $MASTER_PORT"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out, port + "\n");
  EXPECT_THAT(result.err, HasSubstr("port " + port + " is busy"));
}

TEST(Launch, a_free_port_is_used_as_given) {
  auto probe = launch::listen_on_loopback(0);
  probe.socket.close();
  const auto result =
      ivme({"launch", "--main_process_port", std::to_string(probe.port), "sh", "-c", "echo $MASTER_PORT"});
  EXPECT_EQ(result.out, std::to_string(probe.port) + "\n");
  EXPECT_EQ(result.err, "");
}

TEST(Launch, rank_0_reads_stdin_and_the_others_find_it_empty) {
  const auto result = ivme({"launch", "-n", "2", "--tee", "cat"}, {.input = "hello\n"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "hello\n");
}

TEST(Launch, output_of_rank_0_passes_unchanged_and_that_of_others_is_silent) {
  const auto result = ivme({"launch", "-n", "2", "sh", "-c", "printf 'a\\r\\n\\tb'; printf 'e\\n' >&2"});
  EXPECT_EQ(result.out, "a\r\n\tb");
  EXPECT_EQ(result.err, "e\n");
}

TEST(Launch, an_unfinished_line_of_rank_0_is_shown_while_it_works) {
  Tool tool({"launch", "sh", "-c", "printf 'epoch 1 ... '; exec sleep 20"});
  EXPECT_TRUE(tool.shows("epoch 1 ... ", 3));
  tool.send(SIGTERM);
  EXPECT_EQ(tool.wait().code, 143);
}

TEST(Launch, a_progress_bar_of_rank_0_is_shown_at_once_and_lines_of_others_do_not_run_into_it) {
  const auto result = ivme({"launch", "-n", "2", "--tee", "sh", "-c",
                            "[ $RANK = 0 ] && { printf '\\r45%%'; sleep 0.6; exit; }; sleep 0.3; echo line"});
  EXPECT_EQ(result.out, "\r45%\n[rank 1] line\n");
}

TEST(Launch, logs_hold_all_that_each_rank_printed) {
  const auto folder = std::filesystem::temp_directory_path() / unique_word();
  const auto result = ivme({"launch", "-n", "2", "--log_dir", folder / "deep", "sh", "-c",
                            "echo out of $RANK; echo err of $RANK >&2; printf tail"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "out of 0\ntail");
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(contents(folder / "deep" / ("rank_" + rank + ".out")), "out of " + rank + "\ntail");
    EXPECT_EQ(contents(folder / "deep" / ("rank_" + rank + ".err")), "err of " + rank + "\n");
  }
  std::filesystem::remove_all(folder);
}

TEST(Launch, fifty_thousand_lines_of_each_rank_come_whole_and_in_order) {
  const int count = 50000;
  const auto result = ivme(
      {"launch", "-n", "2", "--tee", "sh", "-c",
       "awk 'BEGIN { for (i = 0; i < 50000; ++i) { print \"out \" i \" end\"; print \"err \" i \" end\" > "
       "\"/dev/stderr\" } }'"},
      {.merged = true});
  EXPECT_EQ(result.code, 0);
  int next[4] = {};
  const char* starts[4] = {"out ", "err ", "[rank 1] out ", "[rank 1] err "};
  for (const auto& line : lines(result.out)) {
    const int kind = (line.starts_with("[") ? 2 : 0) + (line.find("err") != std::string::npos);
    ASSERT_EQ(line, starts[kind] + std::to_string(next[kind]) + " end");
    ++next[kind];
  }
  EXPECT_THAT(next, ElementsAre(count, count, count, count));
}

TEST(Launch, much_output_of_a_silent_rank_neither_blocks_it_nor_fills_memory) {
  const auto result = ivme({"launch", "-n", "2", "sh", "-c", "[ $RANK = 0 ] || head -c 200000000 /dev/zero"});
  EXPECT_EQ(result.code, 0);
  EXPECT_LT(result.peak_kib, 64 * 1024);
}

TEST(Launch, a_slow_reader_holds_the_rank_up_instead_of_filling_memory) {
  Tool tool({"launch", "sh", "-c", "yes 0123456789 | head -c 50000000"});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto result = tool.wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.size(), 50000000u);
  EXPECT_LT(result.peak_kib, 64 * 1024);
}

TEST(Launch, a_program_whose_output_nobody_reads_any_more_ends) {
  Tool tool({"launch", "-n", "2", "yes"});
  EXPECT_TRUE(tool.shows("y\n"));
  tool.stop_reading();
  const auto result = tool.wait();
  EXPECT_EQ(result.code, 128 + SIGPIPE);
  EXPECT_LT(result.seconds, 5);
}

TEST(Launch, where_stdout_and_stderr_are_one_place_a_line_comes_after_the_progress_bar_that_ended_before_it) {
  for (int i = 0; i < 20; ++i) {
    const auto result =
        ivme({"launch", "sh", "-c", "printf 'bar\\rbar, done\\n' >&2; echo result"}, {.merged = true});
    EXPECT_EQ(result.out, "bar\rbar, done\nresult\n");
  }
}

TEST(Launch, a_program_is_told_that_a_terminal_watches_and_how_wide_it_is) {
  int terminal = -1, other_side = -1;
  winsize size{};
  size.ws_col = 123;
  ASSERT_EQ(::openpty(&other_side, &terminal, nullptr, nullptr, &size), 0);
  const launch::FileDescriptor a(terminal), b(other_side);
  const auto result = ivme({"launch", "-n", "2", "--tee", "sh", "-c", "echo $IVME_TTY $COLUMNS"},
                           {.environment = {"COLUMNS="}, .err = terminal});
  EXPECT_THAT(lines(result.out), UnorderedElementsAre("1 123", "[rank 1] "));
}

TEST(Launch, the_library_call_returns_the_exit_code_and_leaves_the_caller_as_it_was) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  launch::LaunchOptions options;
  options.command = {"sh", "-c", "[ $RANK = 0 ] || exit 5"};
  options.num_processes = 2;
  EXPECT_EQ(launch::run(options), 5);
  options.command = {"true"};
  EXPECT_EQ(launch::run(options), 0);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

}  // namespace
}  // namespace ivme::testing
