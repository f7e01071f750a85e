#include "launch/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "ivme/error.h"

namespace ivme::launch {
namespace {

// False when the port is taken or not ours to take.
bool try_listen(int port, Listener& result) {
  result.socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!result.socket.open() ||
      ::setsockopt(result.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(result.socket.get(), generic, size) != 0 || ::listen(result.socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(result.socket.get(), generic, &size) != 0) {
    return false;
  }
  result.port = ntohs(address.sin_port);
  return true;
}

}  // namespace

Listener listen_on_loopback(int port) {
  Listener result;
  if (try_listen(port, result) || try_listen(0, result)) return result;
  throw Error("A socket for the ranks to meet on was asked of the system, and it gave none: " +
              std::string(std::strerror(errno)) + ". Check that 127.0.0.1 is up and descriptors are left.");
}

}  // namespace ivme::launch
