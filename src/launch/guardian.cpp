#include "launch/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "ivme/error.h"
#include "launch/process_tree.h"

namespace ivme::launch {
namespace {

constexpr double settle_seconds = 0.3;
constexpr double grace_seconds = 1.0;
constexpr double kill_again_seconds = 0.02;
constexpr double give_up_seconds = 10.0;  // a process the kernel cannot kill now (a dead disk)
constexpr double never = 1e300;

double now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

void close_all_but(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned from = 3;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > from) ::close_range(from, fd - 1, 0);
    from = fd + 1;
  }
  ::close_range(from, ~0U, 0);
}

// The guardian's own life, after the fork.
class Watch {
 public:
  Watch(const Job& job, int line, int events)
      : job_(job), line_(line), events_(events), pids_(job.ranks.size()) {}

  void run() {
    settle_in();
    for (size_t rank = 0; rank < job_.ranks.size() && kill_at_ == never; ++rank) start(rank);
    close_all_but({line_, events_, children_});
    while (reap() && now() < kill_from_ + give_up_seconds) {
      act();
      sleep_until_news();
    }
  }

 private:
  void settle_in() {
    ::setsid();
    ::prctl(PR_SET_NAME, "launch-guard");
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    children_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  }

  void tell(Event event) const {
    event.seconds = now();
    [[maybe_unused]] const ssize_t n = ::write(events_, &event, sizeof event);
  }

  void start(size_t rank) {
    const auto environment = pointers(job_.ranks[rank].environment);
    const auto command = pointers(job_.command);
    const pid_t guardian = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) become(rank, command.data(), environment.data(), guardian);
    if (pid < 0) {
      tell({Event::not_started, static_cast<int>(rank), 0, errno, 0, 0, 0});
      stop(SIGKILL, 0);
      return;
    }
    ::setpgid(pid, pid);
    pids_[rank] = pid;
    ++alive_;
    tell({Event::started, static_cast<int>(rank), pid, 0, 0, 0, 0});
  }

  [[noreturn]] void become(size_t rank, char* const* command, char* const* environment,
                           pid_t guardian) const {
    const RankStart& start = job_.ranks[rank];
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != guardian) ::_exit(127);
    ::dup2(start.in.get(), 0);
    ::dup2(start.out.get(), 1);
    ::dup2(start.err.get(), 2);
    if (rank == 0) ::fcntl(job_.listen_fd, F_SETFD, 0);
    ::sigaction(SIGPIPE, &job_.on_sigpipe, nullptr);
    ::sigprocmask(SIG_SETMASK, &job_.mask, nullptr);
    ::execve(job_.path.c_str(), command, environment);
    tell({Event::not_started, static_cast<int>(rank), ::getpid(), errno, 0, 0, 0});
    ::_exit(127);
  }

  // Takes note of all that have ended; false when no child of any kind is left.
  bool reap() {
    ++look_;
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid == 0) return true;
      if (pid < 0) return errno == EINTR;
      const auto found = std::ranges::find(pids_, pid);
      if (found == pids_.end()) continue;
      *found = 0;
      --alive_;
      const int rank = static_cast<int>(found - pids_.begin());
      tell({Event::ended, rank, pid, status, look_, stopping_, 0});
      if (status != 0) stop_at_ = std::min(stop_at_, now() + settle_seconds);
    }
  }

  void act() {
    const double t = now();
    if (!stopping_ && (alive_ == 0 || t >= stop_at_)) stop(SIGTERM, grace_seconds);
    if (t < kill_at_) return;
    signal_all(SIGKILL);
    kill_at_ = t + kill_again_seconds;
  }

  void stop(int signal, double grace) {
    stopping_ = 1;
    if (signal != SIGKILL) signal_all(signal);
    kill_at_ = std::min(kill_at_, now() + grace);
    kill_from_ = std::min(kill_from_, kill_at_);
  }

  void signal_all(int signal) const {
    for (const pid_t pid : descendants(::getpid())) ::kill(pid, signal);
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(-pid, signal);  // without /proc, at least each rank's process group
    }
  }

  void sleep_until_news() {
    const double next = std::min(stopping_ ? never : stop_at_, kill_at_);
    const double wait = std::clamp((next - now()) * 1000 + 1, 0.0, 3.6e6);
    pollfd polled[2] = {{children_, POLLIN, 0}, {line_, POLLIN, 0}};
    if (::poll(polled, 2, static_cast<int>(wait)) <= 0) return;
    signalfd_siginfo ignored;
    while (::read(children_, &ignored, sizeof ignored) > 0) continue;
    if (polled[1].revents != 0) listen();
  }

  void listen() {
    unsigned char signal = 0;
    const ssize_t n = ::read(line_, &signal, 1);
    if (n < 0) return;
    const bool launcher_gone = n == 0;
    if (launcher_gone) line_ = -1;  // poll passes over it
    stop(launcher_gone ? SIGKILL : signal, launcher_gone || signal == SIGKILL ? 0 : grace_seconds);
  }

  const Job& job_;
  int line_, events_, children_ = -1;
  std::vector<pid_t> pids_;  // of the ranks; 0 before and after
  int alive_ = 0;
  int look_ = 0;
  int stopping_ = 0;
  double stop_at_ = never, kill_at_ = never, kill_from_ = never;
};

}  // namespace

Guardian start_guardian(const Job& job) {
  Guardian guardian;
  auto [line, line_end] = make_pipe();
  auto [events_end, events] = make_pipe();
  guardian.line = std::move(line_end);
  guardian.events = std::move(events_end);
  guardian.pid = ::fork();
  if (guardian.pid == 0) {
    guardian.line.close();
    guardian.events.close();
    Watch(job, line.get(), events.get()).run();
    ::_exit(0);
  }
  if (guardian.pid < 0) {
    throw Error(std::string("A process was asked of the system, and it gave none: ") + std::strerror(errno) +
                ". Close other programs, or raise the limit (ulimit -u).");
  }
  return guardian;
}

}  // namespace ivme::launch
