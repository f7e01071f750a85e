#pragma once
#include <deque>
#include <string>
#include <vector>

namespace ivme::launch {

// How a rank ended.
struct Ending {
  int rank = 0;
  int pid = 0;
  int status = 0;                              // as of waitpid
  double seconds = 0;                          // how long it ran
  int look = 0;                                // order of ending; equal numbers: not known which was first
  bool stopped = false;                        // after the ranks had been told to stop
  std::deque<std::string> out = {}, err = {};  // last lines
};

// The rank to blame, or null when none failed by itself: of those that failed before the ranks were told to
// stop, the first, where one whose own last lines tell of a lost connection counts after those with another
// reason, and of those found at the same look one ended by a signal comes first.
const Ending* culprit(const std::vector<Ending>& endings);

// The exit code that tells of `status`: its own, or 128 + signal.
int exit_code(int status);

// What is printed last: which rank, its pid, how and when it ended, and its last lines.
std::string failure_report(const Ending& failure, int num_processes, const std::string& log_dir);

}  // namespace ivme::launch
