// Whether packets of the full size get through to another host. A switch with a smaller MTU than
// both ends drops large packets, and where no ICMP comes back neither end learns of it: connections
// open and small messages pass, but every transfer hangs (RFC 2923, "black hole").
//
// The probe needs no privileges, and nothing on the other host but a TCP port that listens. It
// opens a connection whose segments have a certain size (TCP_MAXSEG), sends one of them, and waits
// for the kernel's acknowledgment. The listener sees a connection that sends some bytes and closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace weft::net {

struct PathMtu {
    std::string device;  // by which the packets leave; "": not known
    int device_mtu = 0;  // of that interface; 0: not known
    int largest = 0;     // bytes of the largest packet that both ends agreed on
    int passed = 0;      // bytes of the largest packet that got there
    bool whole() const { return passed >= largest; }
};

// host: a name or an address, "fe80::1%eth1". first: what the bytes begin with, for a listener that
// reads them; zeros follow. Nothing where there is no connection, or where not
// even small packets get through. Takes milliseconds where whole packets pass, else at most
// 3 * timeout_ms. Thread: any.
std::optional<PathMtu> ProbePathMtu(const std::string& host, uint16_t port,
                                    std::span<const std::byte> first = {},
                                    int64_t timeout_ms = 1200);

}  // namespace weft::net
