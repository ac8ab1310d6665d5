// Paths between hosts that share a subnet, and the command that tests one with full-size packets.
#pragma once

#include <string>
#include <vector>

#include "doctor/check.h"

namespace weft::doctor {

struct Path {
    std::string device, address, peer;  // of this host; of the peer; the peer's name
    int mtu = 0;                        // of this host's device
};

// From `host` to every other host over each shared subnet; at most 16.
std::vector<Path> PathsFrom(HostView& host, Hosts hosts);

inline constexpr int kSmallPacket = 576;  // every path must carry it

// Sends one packet of `bytes` in all, without fragmentation; waits a second for the reply.
std::string PingCommand(const Path& path, int bytes);

}  // namespace weft::doctor
