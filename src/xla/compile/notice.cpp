#include "xla/compile/notice.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "process/environment.h"

namespace ivme::xla {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Draws the line anew four times a second, from the first quarter on: a short compilation leaves no trace.
class RunningClock {
 public:
  explicit RunningClock(size_t operations) : thread_([this, operations] { draw(operations); }) {}
  ~RunningClock() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void draw(size_t operations) {
    const auto start = Clock::now();
    std::unique_lock lock(mutex_);
    bool drawn = false;
    while (!changed_.wait_for(lock, std::chrono::milliseconds(250), [this] { return done_; })) {
      std::fprintf(stderr, "\rivme: compiling a step of %zu operations for XLA … %.1f s", operations,
                   seconds_since(start));
      std::fflush(stderr);
      drawn = true;
    }
    if (drawn) std::fputs("\r\033[K", stderr);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

void with_notice(size_t operations, const std::function<bool()>& compile) {
  const auto start = Clock::now();
  bool compiled = false;
  if (::isatty(2) || read_environment("IVME_TTY")) {
    RunningClock clock(operations);
    compiled = compile();
  } else {
    compiled = compile();
  }
  if (compiled)
    std::fprintf(stderr, "ivme: compiled a step of %zu operations for XLA in %.1f s\n", operations,
                 seconds_since(start));
}

}  // namespace ivme::xla
