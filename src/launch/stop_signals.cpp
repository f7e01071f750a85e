#include "launch/stop_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace ivme::launch {

StopSignals::StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, &mask_);
  fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &on_sigpipe_);
}

StopSignals::~StopSignals() {
  while (take() != 0) continue;
  ::sigaction(SIGPIPE, &on_sigpipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
}

int StopSignals::take() const {
  signalfd_siginfo info;
  return ::read(fd(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace ivme::launch
