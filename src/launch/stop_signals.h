#pragma once
#include <csignal>

#include "launch/file_descriptor.h"

namespace ivme::launch {

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT to this thread become readable on fd() instead of
// ending the process, and SIGPIPE is ignored. The destructor puts all back.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int fd() const { return fd_.get(); }
  int take() const;  // the number of one that came, 0 if none did
  const sigset_t& former_mask() const { return mask_; }
  const struct sigaction& former_on_sigpipe() const { return on_sigpipe_; }

 private:
  FileDescriptor fd_;
  sigset_t mask_;
  struct sigaction on_sigpipe_;
};

}  // namespace ivme::launch
