#include "launch/failure.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <tuple>

namespace ivme::launch {
namespace {

bool tells_of_a_lost_connection(const Ending& ending) {
  static constexpr const char* phrases[] = {"Connection reset by peer", "Connection closed by peer",
                                            "Broken pipe", "closed the connection", "remote process exited"};
  const auto tells = [](const std::string& line) {
    return std::ranges::any_of(phrases,
                               [&](const char* phrase) { return line.find(phrase) != std::string::npos; });
  };
  return std::ranges::any_of(ending.err, tells) || std::ranges::any_of(ending.out, tells);
}

const char* hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return "; likely out of memory, or killed by hand";
    case SIGSEGV:
      return "; it used memory that is not its own";
    case SIGABRT:
      return "; an exception that nobody caught, or a failed check";
    case SIGBUS:
      return "; a file or shared memory it had mapped ran out";
    case SIGILL:
      return "; likely built for another processor";
    case SIGFPE:
      return "; likely an integer divided by zero";
    case SIGPIPE:
      return "; nobody reads its output any more";
    default:
      return "";
  }
}

std::string how(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigabbrev_np(signal);
  return "ended by signal " + std::to_string(signal) + (name ? std::string(" (SIG") + name + ")" : "");
}

}  // namespace

const Ending* culprit(const std::vector<Ending>& endings) {
  const auto order = [](const Ending& e) {
    const bool innocent = e.stopped || e.status == 0;
    return std::tuple(innocent, tells_of_a_lost_connection(e), e.look, !WIFSIGNALED(e.status));
  };
  const auto first = std::ranges::min_element(endings, {}, order);
  return first == endings.end() || first->stopped || first->status == 0 ? nullptr : &*first;
}

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string failure_report(const Ending& e, int num_processes, const std::string& log_dir) {
  char time[32];
  std::snprintf(time, sizeof time, "%.1f s", e.seconds);
  std::string text = "rank " + std::to_string(e.rank) + " (pid " + std::to_string(e.pid) + ") " +
                     how(e.status) + " after " + time +
                     (WIFSIGNALED(e.status) ? hint(WTERMSIG(e.status)) : "") + ".";
  if (num_processes > 1)
    text += num_processes > 2 ? " The other ranks were stopped." : " The other rank was stopped.";
  if (!log_dir.empty())
    text += " All it printed: " + log_dir + "/rank_" + std::to_string(e.rank) + ".{out,err}.";
  // The reason is most often on stderr, which comes last; stdout gets what room is left, and a little in any
  // case.
  const size_t most = 10;
  const size_t from_out = std::min(e.out.size(), std::max<size_t>(3, most - std::min(most, e.err.size())));
  const size_t from_err = std::min(e.err.size(), most - from_out);
  if (from_out + from_err == 0) return text + " It printed nothing.\n";
  text += from_out + from_err == 1 ? " Its last line:\n"
                                   : " Its last " + std::to_string(from_out + from_err) + " lines:\n";
  for (size_t i = e.out.size() - from_out; i < e.out.size(); ++i) text += "  " + e.out[i] + "\n";
  for (size_t i = e.err.size() - from_err; i < e.err.size(); ++i) text += "  " + e.err[i] + "\n";
  return text;
}

}  // namespace ivme::launch
