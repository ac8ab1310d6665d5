// The addresses under which a host can be reached, and those by which one host reaches another.
//
// Hosts may share several networks, or each pair of them a cable of its own. So every rank says all
// its addresses, and each pair of ranks picks from both lists: common subnets first, the fastest
// before the others, then the address that is known to work for the control plane.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::net {

// Any address of this machine, that of the loopback device included, and the interface that has it.
struct LocalAddress {
    std::string address;
    std::string netdev;
};
std::vector<LocalAddress> ListLocalAddresses();

struct HostAddress {
    std::string host;       // numeric, without scope
    int prefix = 0;         // bits of its subnet
    std::string interface;  // that has it
    int speed_mbps = 0;     // of the interface; 0: not known
    bool bridge = false;    // of containers or virtual machines, mostly

    bool operator==(const HostAddress&) const = default;
    bool link_local() const { return host.starts_with("fe80:"); }
};

// Of interfaces that are up and have a carrier, without loopback; at most kMostAddresses.
inline constexpr size_t kMostAddresses = 16;
std::vector<HostAddress> ListHostAddresses();
// Those in one of the networks of `words` ("10.0.1.0/24,eth2": CIDR or interface); "": all.
// Errors: kUsage (malformed), kNotFound (none is; names those that there are).
Result<std::vector<HostAddress>> OnDataNet(const std::vector<HostAddress>& addresses,
                                           std::string_view words);
// Whether the words are well-formed. Errors: kUsage.
Status CheckDataNet(std::string_view words);

// An address of this host, where it listens, and how the peer names it (a link-local one goes with
// the peer's interface).
struct Way {
    std::string listen;
    std::string dial;
    bool operator==(const Way&) const = default;
};
// How a peer with the addresses `theirs` may reach `mine`, best first, at most kMostWays. An
// address that both have (as containers' bridges do) leads nowhere. known: an address of mine that
// the peer is likely to reach, without a common subnet too; "": none.
inline constexpr size_t kMostWays = 12;
std::vector<Way> WaysFrom(std::span<const HostAddress> theirs, std::span<const HostAddress> mine,
                          const std::string& known);

// For the control plane. Unpack's errors: kCorrupt.
std::string PackAddresses(std::span<const HostAddress> addresses);
Result<std::vector<HostAddress>> UnpackAddresses(std::string_view text);

}  // namespace weft::net
