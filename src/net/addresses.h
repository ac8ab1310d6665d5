// Lists a host's addresses, and chooses the addresses by which one host reaches another.
//
// Hosts may share several networks, or each pair may have its own cable. So every rank announces
// all its addresses, and each pair chooses from both lists: common subnets first, by speed, then
// the address that is known to work for the control plane.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft::net {

// Any address of this machine, loopback included, with its interface.
struct LocalAddress {
    std::string address;
    std::string netdev;
};
std::vector<LocalAddress> ListLocalAddresses();

struct HostAddress {
    std::string host;       // numeric, without scope
    int prefix = 0;         // bits of its subnet
    std::string interface;  // with this address
    int speed_mbps = 0;     // of the interface; 0: unknown
    bool bridge = false;    // usually of containers or virtual machines
    // Local properties; not sent to others.
    bool tunnel = false;      // an interface of WireGuard or another VPN, or a point-to-point link
    bool is_virtual = false;  // no device behind it
    // For a link-local address: link-local addresses of other hosts heard on its cable, if known.
    // They distinguish hosts on one cable from hosts on different cables.
    std::vector<std::string> neighbours{};

    bool operator==(const HostAddress&) const = default;
    bool link_local() const { return host.starts_with("fe80:"); }
};

// A host that this host heard: its link-local address, and the interface that heard it.
struct Neighbour {
    std::string interface, address;
    bool operator==(const Neighbour&) const = default;
};
// Text for a command line: "eth1=fe80::2,eth1=fe80::3". Errors of ParseNeighbours: kUsage.
inline constexpr size_t kMostNeighbours = 64;
std::string NeighboursText(std::span<const Neighbour> neighbours);
Result<std::vector<Neighbour>> ParseNeighbours(std::string_view text);
// Adds each neighbor to the link-local addresses of its interface.
void AddNeighbours(std::span<const Neighbour> neighbours, std::vector<HostAddress>& addresses);

// The `addresses` in one of the networks `words` ("10.0.1.0/24,eth2": CIDR or interface); "": all.
// With more than kMostAddresses, drops link-local addresses and addresses of bridges and other
// virtual interfaces. Errors: kUsage (malformed), kNotFound (no match; names the addresses).
inline constexpr size_t kMostAddresses = 16;
Result<std::vector<HostAddress>> OnDataNet(const std::vector<HostAddress>& addresses,
                                           std::string_view words);
// The same for this host: addresses of interfaces that are up and have a carrier, and loopback
// addresses that others may reach (on routed hosts).
Result<std::vector<HostAddress>> ListHostAddresses(std::string_view words = "");
// Checks the syntax of `words`. Errors: kUsage.
Status CheckDataNet(std::string_view words);

// An address on which this host listens, and the peer's form of it (the scope of a link-local
// address is the peer's interface).
struct Way {
    std::string listen;
    std::string dial;
    bool operator==(const Way&) const = default;
};
// Ways by which a peer with the addresses `theirs` may reach `mine`, best first, at most kMostWays.
// Link-local addresses on a cable that is known to join both hosts count as a common subnet. An
// address that both hosts have (as container bridges do) is skipped. known: an address of mine that
// the peer probably reaches, also without a common subnet; "": none. If `known` belongs to a tunnel
// or is alone in its subnet (/32), it comes first, because a user who names it means that network.
inline constexpr size_t kMostWays = 12;
std::vector<Way> WaysFrom(std::span<const HostAddress> theirs, std::span<const HostAddress> mine,
                          const std::string& known);

// A pair of addresses in one subnet, except a container bridge's (every host may have such a bridge
// with the same addresses). nullopt: none.
std::optional<std::pair<HostAddress, HostAddress>> CommonNetwork(
    std::span<const HostAddress> theirs, std::span<const HostAddress> mine);

// Format of the control plane. Errors of UnpackAddresses: kCorrupt.
std::string PackAddresses(std::span<const HostAddress> addresses);
Result<std::vector<HostAddress>> UnpackAddresses(std::string_view text);

}  // namespace weft::net
