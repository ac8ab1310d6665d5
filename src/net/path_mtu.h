// Tests whether full-size packets reach another host. A switch with a smaller MTU than both ends
// drops large packets. If no ICMP message returns, neither end notices the loss: connections open
// and small messages arrive, but every large transfer hangs (RFC 2923, "black hole").
//
// The probe needs no privileges, and only a listening TCP port on the other host. It opens a
// connection with a given segment size (TCP_MAXSEG), sends one segment, and waits for the
// acknowledgment by the other host's kernel. The program that listens sees a connection that sends
// some bytes and closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace weft::net {

// The kernel disables IPv6 on an interface with a smaller MTU (RFC 8200).
inline constexpr int kLeastMtu = 1280;

struct PathMtu {
    std::string device;  // outgoing interface; "": unknown
    int device_mtu = 0;  // MTU of that interface; 0: unknown
    int largest = 0;     // size in bytes of the largest packet on which both ends agreed
    int passed = 0;      // size in bytes of the largest packet that arrived
    bool whole() const { return passed >= largest; }
};

// host: a name or an address such as "fe80::1%eth1". first: the first bytes to send, for a listener
// that checks them; zeros follow. nullopt: no connection, or even small packets are lost. Takes
// milliseconds if full-size packets arrive, else at most 3 * timeout_ms. Thread: any.
std::optional<PathMtu> ProbePathMtu(const std::string& host, uint16_t port,
                                    std::span<const std::byte> first = {},
                                    int64_t timeout_ms = 1200);

}  // namespace weft::net
