#pragma once
#include "launch/file_descriptor.h"

namespace ivme::launch {

// A TCP socket that listens on 127.0.0.1.
struct Listener {
  FileDescriptor socket;  // close-on-exec
  int port = 0;
};

// Listens on `port`, or on a free port if it is 0. If another process has the port, the result has a free
// one: compare. Throws ivme::Error when no socket is to be had.
Listener listen_on_loopback(int port);

}  // namespace ivme::launch
