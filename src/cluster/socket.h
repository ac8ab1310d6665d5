// Control-plane additions to net/socket.h: address texts, dialing with retries, socket pairs. All
// descriptors are non-blocking and close-on-exec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/result.h"
#include "net/socket.h"

namespace weft::cluster {

// Default port of listening workers, and of a rank 0 that workers dial.
inline constexpr uint16_t kWorkerPort = 7000;

struct Address {
    std::string host;
    uint16_t port = 0;
    std::string Text() const;  // "h2:7000", "[::1]:7000"
};

// "host:port" or "[v6]:port". Errors: kUsage.
Result<Address> ParseAddress(std::string_view text);
// Adds kWorkerPort if the text has no port: "h2", "10.0.0.2", "fd00::2", "[fd00::2]".
std::string WithWorkerPort(const std::string& text);
// name: for errors, "worker h2:7000". Retries while the host refuses, until the deadline. cancel:
// as in net::DialTcp. Errors: kTimeout, kIo, kCancelled.
Result<Fd> Dial(const Address& address, const std::string& name, const Deadline& deadline,
                int cancel = -1);
// Sleeps for `ms`. Returns false if `cancel` (-1: none) became readable, which ends the sleep.
bool NapUnless(int cancel, int64_t ms);
// A connected pair between this process and a child. Errors: kIo.
Result<std::pair<Fd, Fd>> MakeSocketPair();

void SetNoDelay(int fd);
// Detects a silent host within half a minute.
void SetKeepAlive(int fd);
// At close, drops data that the peer has not acknowledged.
void SetResetOnClose(int fd);
// This end's numeric address, and the other end's with its port; "": none.
std::string LocalHost(int fd);
std::string PeerText(int fd);
std::string PeerHost(int fd);  // without the port

}  // namespace weft::cluster
