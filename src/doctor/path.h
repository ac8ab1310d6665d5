// The ways between hosts that share a subnet, and the command that tries one with whole packets.
#pragma once

#include <string>
#include <vector>

#include "doctor/check.h"

namespace weft::doctor {

struct Path {
    std::string device, address, peer;  // of this host; of the peer; the peer's name
    int mtu = 0;                        // of this host's device
};

// From `host` to every other host, by every subnet that they share; at most 16.
std::vector<Path> PathsFrom(HostView& host, Hosts hosts);

inline constexpr int kSmallPacket = 576;  // what every way must carry

// One packet of `bytes` in all, that may not be cut, with a second to answer.
std::string PingCommand(const Path& path, int bytes);

}  // namespace weft::doctor
