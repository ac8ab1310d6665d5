// Sockets: listeners, dialing with a deadline, and sending descriptors over unix sockets.
//
// Every descriptor is close-on-exec. An address is "host" and port; a host is a name, an IPv4 or an
// IPv6 address. Errors: kIo with the address and the system's message, kTimeout.
#pragma once

#include <netdb.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/result.h"

namespace weft::net {

void SetBlocking(int fd, bool blocking);

// The addresses of a host, for a connection to `port`. A lookup that takes longer than the deadline
// continues: the next call for this host and port waits for the same lookup.
using AddressList = std::shared_ptr<const addrinfo>;
Result<AddressList> FindAddresses(const std::string& host, uint16_t port, const Deadline& deadline);

// Listens on `host` ("": every address, IPv6 and IPv4) and `port` (0: any free port). If `host` is
// a name with several addresses, listens on the first free one, and logs it. The socket is
// non-blocking.
Result<Fd> ListenTcp(const std::string& host, uint16_t port);
Result<uint16_t> BoundPort(int fd);
// The local address of a socket: numeric, without scope, an IPv4 address in IPv4 notation even on a
// dual-stack socket. "": not a TCP socket.
std::string BoundHost(int fd);
// The beginning of DialTcp's errors about the name of the host, which was not called then.
inline constexpr std::string_view kNameFault = "address '";
// Returns a connected, non-blocking socket. cancel: a descriptor (-1: none); when it becomes
// readable, the call fails with kCancelled. An address of `host` that is silent does not keep the
// call from the next one.
Result<Fd> DialTcp(const std::string& host, uint16_t port, const Deadline& deadline,
                   int cancel = -1);

// Abstract unix sockets (no file): they belong to the network namespace and end with the process.
Result<Fd> ListenUnix(const std::string& name);
// Waits while the queue of the listener is full.
Result<Fd> DialUnix(const std::string& name, const Deadline& deadline);
// Accepts the next waiting connection and makes it non-blocking. Returns an invalid Fd if no
// connection waits, or (IsExhausted(errno), after a short pause) if this process or the system has
// no free descriptor: the connection then stays in the queue.
Fd Accept(int listener);
bool IsExhausted(int error);

// Sends one message with a descriptor over a unix socket.
Status SendWithFd(int socket, std::span<const std::byte> message, int fd);
// Receives available bytes into `message`, without blocking. Returns their number; 0 at the end of
// the stream, or if the peer sends another descriptor than the first, which is closed; -1 if
// nothing has arrived. Stores a received descriptor in `fd`.
int RecvWithFd(int socket, std::span<std::byte> message, Fd& fd);

}  // namespace weft::net
