#pragma once
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/file_descriptor.h"

namespace ivme::launch {

// A small process between the launcher and the ranks. It is the ranks' parent and adopts whatever they leave
// behind, so it can end the whole tree however deep, and it does so
//   - when a rank fails: 0.3 s later (so that ranks failing by themselves are heard), SIGTERM, 1 s later
//   SIGKILL;
//   - when all ranks have ended: the same for what they left running;
//   - when the launcher asks;
//   - when the launcher is gone, for whatever reason: its end of the line closes, SIGKILL at once.
// Should the guardian itself be killed, the kernel kills the ranks (PR_SET_PDEATHSIG).

// What a rank is started with.
struct RankStart {
  std::vector<std::string> environment;
  FileDescriptor in, out, err;
};

struct Job {
  std::string path;  // of the program
  std::vector<std::string> command;
  std::vector<RankStart> ranks;
  int listen_fd = -1;           // inherited by rank 0 alone
  sigset_t mask;                // signal mask of the ranks
  struct sigaction on_sigpipe;  // what the ranks do on SIGPIPE
};

// What the guardian tells.
struct Event {
  enum Kind : int32_t { started, ended, not_started } kind;
  int32_t rank;
  int32_t pid;
  int32_t status;    // ended: as of waitpid; not_started: errno
  int32_t look;      // ended ranks that were found at the same look have the same number
  int32_t stopping;  // 1: the guardian had begun to stop the ranks
  double seconds;    // CLOCK_MONOTONIC
};

// The guardian as its launcher sees it.
struct Guardian {
  pid_t pid = -1;
  FileDescriptor line;    // a signal's number as one byte: pass it on and end all; 9 ends all at once
  FileDescriptor events;  // delivers Event objects, whole; its end means that nothing is left running
};

// Starts it, and it starts the ranks. Throws ivme::Error when the system refuses.
Guardian start_guardian(const Job& job);

}  // namespace ivme::launch
