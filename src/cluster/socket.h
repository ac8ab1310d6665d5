// What the control plane adds to net/socket.h: words for addresses, patient dialling, socket pairs.
// All descriptors are non-blocking and closed on exec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/result.h"
#include "net/socket.h"

namespace weft::cluster {

using net::Fd;

// Where workers listen, and a rank 0 that workers dial, unless told otherwise.
inline constexpr uint16_t kWorkerPort = 7000;

struct Address {
    std::string host;
    uint16_t port = 0;
    std::string Text() const;  // "h2:7000", "[::1]:7000"
};

// "host:port" or "[v6]:port". Errors: kUsage.
Result<Address> ParseAddress(std::string_view text);
// The same with kWorkerPort where there is no port: "h2", "10.0.0.2", "fd00::2", "[fd00::2]".
std::string WithWorkerPort(const std::string& text);
// name: for errors, "worker h2:7000". Tries again while the host refuses, until the deadline.
// cancel: as of net::DialTcp. Errors: kTimeout, kIo, kCancelled.
Result<Fd> Dial(const Address& address, const std::string& name, const Deadline& deadline,
                int cancel = -1);
// Sleeps so long; less where `cancel` (-1: none) becomes readable: then it returns false.
bool NapUnless(int cancel, int64_t ms);
// A connected pair between this process and a child of it. Errors: kIo.
Result<std::pair<Fd, Fd>> MakeSocketPair();

void SetNoDelay(int fd);
// A host that goes down without a word is noticed in half a minute.
void SetKeepAlive(int fd);
// At close nothing is kept for a peer that does not answer.
void SetResetOnClose(int fd);
// This end's numeric address, and the other end's with its port; "" where there is none.
std::string LocalHost(int fd);
std::string PeerText(int fd);
std::string PeerHost(int fd);  // without the port

}  // namespace weft::cluster
