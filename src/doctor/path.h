// Paths between hosts that share a subnet, and the command that tests one with full-size packets.
#pragma once

#include <string>
#include <vector>

#include "doctor/check.h"

namespace weft::doctor {

struct Path {
    std::string device, address, peer;  // own interface; peer's address; peer's name
    int mtu = 0;                        // of `device`
};

// The paths from `host` to every other host, over each subnet that both share; at most 16.
std::vector<Path> PathsFrom(HostView& host, Hosts hosts);

inline constexpr int kSmallPacket = 576;  // bytes; every path must carry such packets

// A command that sends one packet of `bytes` (with headers), without fragmentation, and waits a
// second for the reply.
std::string PingCommand(const Path& path, int bytes);

}  // namespace weft::doctor
