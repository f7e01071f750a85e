#include "process/shared_average.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <vector>

namespace ivme {
namespace {

using namespace std::chrono_literals;

float value(int rank, int64_t i) {
  return 1.0f / static_cast<float>(3 + rank + i % 97) - 0.01f * static_cast<float>(rank);
}

// Runs `body` in `size` processes that share memory; rank 0 is this one. Returns the exit codes of the
// others.
std::vector<int> on_ranks(int size, std::chrono::milliseconds timeout,
                          const std::function<int(int, SharedAverage&)>& body) {
  auto shared = SharedAverage::create(size, timeout);
  std::string address = shared->address();
  std::vector<pid_t> others;
  for (int rank = 1; rank < size; ++rank) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(30);
      auto mine = SharedAverage::attach(address, rank, size, timeout);
      _exit(mine ? body(rank, *mine) : 100);
    }
    others.push_back(pid);
  }
  EXPECT_EQ(body(0, *shared), 0);
  std::vector<int> codes;
  for (pid_t pid : others) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

// The definition, straight: share of each, then from rank c-1 downwards, ending at rank c.
float expected(int size, int64_t count, int64_t i) {
  int64_t segment = (count + 2 * size - 1) / (2 * size);
  auto c = static_cast<int>(i / std::max<int64_t>(2 * segment, 1));
  auto share = static_cast<float>(1.0 / size);
  auto of = [&](int rank) { return value((rank % size + size) % size, i) * share; };
  float sum = of(c - 1);
  for (int distance = 2; distance <= size; ++distance) sum = of(c - distance) + sum;
  return sum;
}

TEST(SharedAverage, every_rank_gets_the_average_in_the_order_of_the_ring) {
  for (int size : {2, 3, 4})
    for (int64_t count : {1, 2, 7, 1000, 65536, 65537, 300001}) {
      auto codes = on_ranks(size, 20s, [&](int rank, SharedAverage& shared) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> values(count);
          for (int64_t i = 0; i < count; ++i) values[i] = value(rank, i);
          shared.average(values.data(), count);
          for (int64_t i = 0; i < count; ++i)
            if (values[i] != expected(size, count, i)) return 1;
        }
        return 0;
      });
      EXPECT_EQ(codes, std::vector<int>(size - 1, 0)) << size << " ranks, " << count << " values";
    }
}

TEST(SharedAverage, float64_is_averaged_in_float64) {
  auto codes = on_ranks(2, 20s, [](int rank, SharedAverage& shared) {
    std::vector<double> values(5, rank == 0 ? 1.0 : 2.0 + 1e-12);
    shared.average(values.data(), 5);
    return values[4] == 0.5 + (2.0 + 1e-12) * 0.5 ? 0 : 1;
  });
  EXPECT_EQ(codes, std::vector<int>{0});
}

TEST(SharedAverage, a_killed_rank_is_named_at_once) {
  auto start = std::chrono::steady_clock::now();
  auto codes = on_ranks(3, 60s, [](int rank, SharedAverage& shared) {
    float values[4] = {};
    shared.average(values, 4);
    if (rank == 2) raise(SIGKILL);
    try {
      shared.average(values, 4);
    } catch (const RankLost& lost) {
      std::string reason = lost.what();
      return reason == "rank 2 has ended" || reason == "another rank gave up" ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(SharedAverage, a_rank_that_does_not_come_is_waited_for_until_the_timeout) {
  auto codes = on_ranks(2, 300ms, [](int rank, SharedAverage& shared) {
    if (rank == 1) {
      usleep(1000000);
      return 0;
    }
    float values[4] = {};
    try {
      shared.average(values, 4);
    } catch (const RankLost&) {
      return 0;
    }
    return 1;
  });
  EXPECT_EQ(codes, std::vector<int>{0});
}

TEST(SharedAverage, what_is_not_ours_is_not_mapped) {
  EXPECT_EQ(SharedAverage::attach("/proc/self/fd/0", 1, 2, 1s), nullptr);
  EXPECT_EQ(SharedAverage::attach("none", 1, 2, 1s), nullptr);
  auto for_two = SharedAverage::create(2, 1s);
  EXPECT_EQ(SharedAverage::attach(for_two->address(), 1, 3, 1s), nullptr);
}

}  // namespace
}  // namespace ivme
