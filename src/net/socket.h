// Sockets: owned descriptors, listeners, dialling with a deadline, descriptors over unix sockets.
//
// Every descriptor is close-on-exec. Addresses are "host" and port; a host is a name, an IPv4 or
// an IPv6 address. Errors: kIo with the address and the system's words, kTimeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::net {

// An owned descriptor.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept;
    Fd& operator=(Fd&& other) noexcept;
    ~Fd() { Reset(); }
    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }
    void Reset();

  private:
    int fd_ = -1;
};

void SetBlocking(int fd, bool blocking);

// Listens on `host` ("": every address, IPv6 and IPv4) and `port` (0: any free one). Non-blocking.
Result<Fd> ListenTcp(const std::string& host, uint16_t port);
Result<uint16_t> BoundPort(int fd);
// Numeric, without scope; IPv4 as such on a socket for both. "": not a TCP socket.
std::string BoundHost(int fd);
// Connected and non-blocking.
// cancel: once this descriptor is readable, the call ends with kCancelled. -1: none.
Result<Fd> DialTcp(const std::string& host, uint16_t port, const Deadline& deadline,
                   int cancel = -1);

// Abstract unix sockets (no file): they live in the network namespace and end with the process.
Result<Fd> ListenUnix(const std::string& name);
Result<Fd> DialUnix(const std::string& name);
// The next waiting connection, non-blocking; an invalid Fd if there is none.
Fd Accept(int listener);

// One message with a descriptor beside it, over a unix socket.
Status SendWithFd(int socket, std::span<const std::byte> message, int fd);
// Receives what is there (at most `message`), without blocking. Returns the count of bytes, 0 at
// the end, -1 when there is nothing yet; a descriptor that came along goes to `fd`.
int RecvWithFd(int socket, std::span<std::byte> message, Fd& fd);

}  // namespace weft::net
