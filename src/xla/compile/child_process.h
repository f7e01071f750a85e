#pragma once
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace ivme::xla {

constexpr const char* child_variable = "IVME_TEST_CHILD";

// For tests that need processes which have never loaded a plugin (one that has cannot fork): start_child runs
// the calling test again in a new process, where child_argument gives `argument`.
inline std::optional<std::string> child_argument() {
  const char* argument = ::getenv(child_variable);
  return argument == nullptr ? std::nullopt : std::optional<std::string>(argument);
}

inline pid_t start_child(const std::string& argument) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
  const char* arguments[] = {"child", "--gtest_brief=1", filter.c_str(), nullptr};
  ::setenv(child_variable, argument.c_str(), 1);
  pid_t child = -1;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), ::environ) !=
      0)
    child = -1;
  ::unsetenv(child_variable);
  return child;
}

// Its exit code; minus the signal that ended it; -1 when there is no such child.
inline int wait_for_child(pid_t child) {
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace ivme::xla
