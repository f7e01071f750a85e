#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

// Tests whose body runs on several real ranks: RANKS_TEST(2, Suite, name) { ... } starts itself through `ivme
// launch`, once per rank, and passes when every rank does. Inside the body RANK and WORLD_SIZE are set, as
// for any program.
namespace ivme::test {

inline bool is_rank() { return std::getenv("IVME_RANKS_TEST") != nullptr; }

struct Ended {
  int code = 0;
  std::string output;  // standard output and error of all ranks
};

// Runs a shell command with a time limit in seconds.
inline Ended run(const std::string& command, int limit = 60) {
  Ended ended;
  FILE* pipe =
      popen(("timeout -k 2 " + std::to_string(limit) + " " + command + " 2>&1 < /dev/null").c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) ended.output.append(buffer.data(), n);
  int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

inline std::string this_program() {
  std::array<char, 4096> path{};
  return readlink("/proc/self/exe", path.data(), path.size() - 1) < 0 ? "" : path.data();
}

// This test again, on `ranks` ranks; `environment`: "NAME=value NAME=value".
inline Ended run_on_ranks(int ranks, const std::string& environment = "") {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return run("env IVME_RANKS_TEST=1 OMP_NUM_THREADS=1 " + environment + " " + IVME_TOOL +
             " launch --cpu --tee --num_processes " + std::to_string(ranks) + " " + this_program() +
             " --gtest_filter=" + test->test_suite_name() + "." + test->name());
}

}  // namespace ivme::test

#define RANKS_TEST(ranks, suite, name)                                 \
  static void suite##_##name##_on_each_rank();                         \
  TEST(suite, name) {                                                  \
    if (ivme::test::is_rank()) return suite##_##name##_on_each_rank(); \
    auto ended = ivme::test::run_on_ranks(ranks);                      \
    EXPECT_EQ(ended.code, 0) << ended.output;                          \
  }                                                                    \
  static void suite##_##name##_on_each_rank()
