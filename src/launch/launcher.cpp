#include "launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/guardian.h"
#include "launch/listener.h"
#include "launch/output.h"
#include "launch/program.h"
#include "launch/stop_signals.h"
#include "launch/usage_error.h"

namespace ivme::launch {
namespace {

constexpr double patience_at_the_end = 1.0;

void say(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(2, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += n;
  }
}

FileDescriptor open_file(const std::string& path, int flags) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file.open()) {
    throw Error("The file " + path + " was to be opened, and the system refused: " + std::strerror(errno) +
                ". Check the folder and its permissions.");
  }
  return file;
}

// A program started with stdin, stdout or stderr closed must not get them back as a pipe of ours.
void fill_standard_descriptors() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0 || fd > 2) {
      if (fd > 2) ::close(fd);
      return;
    }
  }
}

int width_of_terminal() {
  if (!::isatty(2)) return 0;
  winsize size{};
  return ::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), plan_(make_plan(options)) {
    job_.path = find_program(options.command.front());
    job_.command = options.command;
    fill_standard_descriptors();
    sinks_ = standard_sinks();
    plan_.terminal_width = width_of_terminal();
    prepare_logs();
  }

  int run() {
    meet_on_a_port();
    for (int rank = 0; rank < plan_.num_processes; ++rank) prepare(rank);
    job_.mask = signals_.former_mask();
    job_.on_sigpipe = signals_.former_on_sigpipe();
    guardian_ = start_guardian(job_);
    job_.ranks.clear();  // our copies of the ranks' ends of the pipes
    listener_.socket.close();
    while (following()) step();
    guardian_.line.close();
    ::waitpid(guardian_.pid, nullptr, 0);
    return conclude();
  }

 private:
  void prepare_logs() {
    if (options_.log_dir.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(options_.log_dir, error);
    if (error) {
      throw UsageError("the log folder '" + options_.log_dir + "' cannot be made: " + error.message(),
                       "--log_dir with a folder that may be written");
    }
  }

  void meet_on_a_port() {
    const int wanted = options_.main_process_port.value_or(0);
    listener_ = listen_on_loopback(wanted);
    plan_.port = listener_.port;
    plan_.listen_fd = job_.listen_fd = listener_.socket.get();
    if (wanted != 0 && plan_.port != wanted) {
      say("ivme launch: port " + std::to_string(wanted) + " is busy; port " + std::to_string(plan_.port) +
          " is used instead.\n");
    }
  }

  void prepare(int rank) {
    RankStart start;
    start.environment = rank_environment(options_, plan_, rank);
    start.in = rank == 0 && !::isatty(0) ? FileDescriptor(::fcntl(0, F_DUPFD_CLOEXEC, 3))
                                         : open_file("/dev/null", O_RDONLY);
    start.out = stream_for(rank, sinks_.out, "out");
    start.err = stream_for(rank, sinks_.err, "err");
    job_.ranks.push_back(std::move(start));
    endings_.emplace_back().rank = rank;
  }

  // Makes one of a rank's streams; returns the rank's end of it.
  FileDescriptor stream_for(int rank, const std::shared_ptr<Sink>& sink, const char* kind) {
    auto [reading, writing] = make_pipe();
    FileDescriptor log;
    const std::string name = "rank_" + std::to_string(rank);
    if (!options_.log_dir.empty()) {
      log = open_file(options_.log_dir + "/" + name + "." + kind, O_WRONLY | O_CREAT | O_TRUNC);
    }
    const bool shown = rank == 0 || options_.tee;
    streams_.emplace_back(std::move(reading), shown ? sink : nullptr,
                          rank == 0 ? "" : "[rank " + std::to_string(rank) + "] ", std::move(log));
    return std::move(writing);
  }

  bool following() const {
    if (given_up_) return false;
    return guardian_.events.open() || sinks_.out->waiting() || sinks_.err->waiting() ||
           std::ranges::any_of(streams_, &OutputStream::open);
  }

  void step() {
    std::vector<pollfd> polled;
    std::vector<std::function<void()>> actions;
    const auto watch = [&](int fd, short events, std::function<void()> action) {
      polled.push_back({fd, events, 0});
      actions.push_back(std::move(action));
    };
    watch(signals_.fd(), POLLIN, [this] { obey(); });
    if (guardian_.events.open()) watch(guardian_.events.get(), POLLIN, [this] { hear(); });
    double due = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i].readable()) watch(streams_[i].fd(), POLLIN, [this, i] { read_from(i); });
      due = std::min(due, streams_[i].unfinished_until());
    }
    for (Sink* sink : {sinks_.out.get(), sinks_.err.get()}) {
      if (sink->waiting() && (sink == sinks_.out.get() || sinks_.out != sinks_.err)) {
        watch(sink->fd(), POLLOUT, [sink] { sink->write_some(); });
      }
    }
    const double wait = guardian_.events.open() ? 60 : patience_at_the_end;
    const double until_due = std::max(0.0, due - steady_seconds());
    const int ready =
        ::poll(polled.data(), polled.size(), static_cast<int>(std::min(wait, until_due) * 1000 + 1));
    for (size_t i = 0; ready > 0 && i < polled.size(); ++i) {
      if (polled[i].revents != 0) actions[i]();
    }
    for (auto& stream : streams_) {
      if (stream.unfinished_until() <= steady_seconds()) stream.show_unfinished();
    }
    if (ready == 0 && until_due > wait) give_up_on_the_silent();
  }

  // What a rank printed before a line of its stdout must not come after it: the end of a progress bar, say.
  void read_from(size_t i) {
    const bool is_stdout = i % 2 == 0;
    if (is_stdout && streams_[i + 1].readable()) {
      pollfd err = {streams_[i + 1].fd(), POLLIN, 0};
      if (::poll(&err, 1, 0) > 0) streams_[i + 1].read_some();
    }
    streams_[i].read_some();
  }

  // All ranks have ended, and for a second nothing has moved.
  void give_up_on_the_silent() {
    if (guardian_.events.open()) return;
    const bool reader_is_slow = sinks_.out->waiting() || sinks_.err->waiting();
    given_up_ = !reader_is_slow || interrupted_ != 0;
  }

  void obey() {
    const int signal = signals_.take();
    if (signal == 0) return;
    const unsigned char byte = static_cast<unsigned char>(interrupted_ == 0 ? signal : SIGKILL);
    [[maybe_unused]] const ssize_t n = ::write(guardian_.line.get(), &byte, 1);
    if (interrupted_ != 0) {
      sinks_.out->drop();
      sinks_.err->drop();
    } else {
      interrupted_ = signal;
    }
  }

  void hear() {
    Event event;
    const ssize_t n = ::read(guardian_.events.get(), &event, sizeof event);
    if (n != sizeof event) {
      guardian_.events.close();
      return kill_the_unguarded();
    }
    Ending& ending = endings_[event.rank];
    if (event.kind == Event::started) {
      ending.pid = event.pid;
      ending.seconds = event.seconds;
      ++running_;
    } else if (event.kind == Event::ended) {
      ending.status = event.status;
      ending.seconds = event.seconds - ending.seconds;
      ending.look = event.look;
      ending.stopped = event.stopping != 0;
      ended_.push_back(event.rank);
    } else {
      not_started_ = event.status;
    }
  }

  // Only if somebody killed the guardian; the kernel has then killed the ranks, but not what they started.
  void kill_the_unguarded() {
    if (static_cast<int>(ended_.size()) == running_) return;
    unguarded_ = true;
    for (const Ending& ending : endings_) {
      if (ending.pid > 0 && std::ranges::find(ended_, ending.rank) == ended_.end())
        ::kill(-ending.pid, SIGKILL);
    }
  }

  int conclude() {
    if (not_started_ == EAGAIN || not_started_ == ENOMEM) {
      throw Error(std::to_string(plan_.num_processes) +
                  " processes were asked of the system, and it refused: " + std::strerror(not_started_) +
                  ". Ask for fewer, or raise the limit (ulimit -u).");
    }
    if (not_started_ != 0) {
      throw UsageError(
          "'" + options_.command.front() + "' could not be started: " + std::strerror(not_started_),
          "a program built for this machine, or a script whose first line names its interpreter");
    }
    if (interrupted_ != 0) {
      pollfd stderr_ready = {2, POLLOUT, 0};
      const char* name = ::sigabbrev_np(interrupted_);
      if (::poll(&stderr_ready, 1, 0) > 0)
        say(fresh_line() + "stopped by SIG" + (name ? name : "NAL") + ".\n");
      return 128 + interrupted_;
    }
    std::vector<Ending> endings;
    for (const int rank : ended_) {
      endings.push_back(endings_[rank]);
      endings.back().out = streams_[2 * rank].last_lines();
      endings.back().err = streams_[2 * rank + 1].last_lines();
    }
    if (const Ending* failure = culprit(endings)) {
      say(fresh_line() + "error: " + failure_report(*failure, plan_.num_processes, options_.log_dir));
      return exit_code(failure->status);
    }
    if (unguarded_) {
      say(fresh_line() +
          "error: the launcher's guardian process was killed from outside; all ranks were stopped.\n");
      return 1;
    }
    return 0;
  }

  std::string fresh_line() const { return sinks_.err->in_mid_line() ? "\n" : ""; }

  const LaunchOptions& options_;
  Plan plan_;
  Job job_;
  Listener listener_;
  Sinks sinks_;
  std::vector<OutputStream> streams_;  // of rank r: 2 r is its stdout, 2 r + 1 its stderr
  StopSignals signals_;
  Guardian guardian_;
  std::vector<Ending> endings_;  // by rank
  std::vector<int> ended_;       // ranks in the order of their end
  int running_ = 0;
  int not_started_ = 0;  // errno
  int interrupted_ = 0;  // signal
  bool unguarded_ = false;
  bool given_up_ = false;
};

}  // namespace

int run(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace ivme::launch
