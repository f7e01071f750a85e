#include "launch/file_descriptor.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "ivme/error.h"

namespace ivme::launch {

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(std::string("A pipe to the ranks was asked of the system, and it gave none: ") +
                std::strerror(errno) + ". Ask for fewer processes, or raise the limit (ulimit -n).");
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace ivme::launch
