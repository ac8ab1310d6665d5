// The addresses under which a host can be reached, and those by which one host reaches another.
//
// Hosts may share several networks, or each pair of them a cable of its own. So every rank says all
// its addresses, and each pair of ranks picks from both lists: common subnets first, the fastest
// before the others, then the address that is known to work for the control plane.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
    // Of this host's own alone; others are not told.
    bool tunnel = false;      // an interface of WireGuard or another VPN, or a link to one peer
    bool is_virtual = false;  // no device stands behind it
    // Of a link-local one: those of other hosts that were heard on its cable, if that is known. So
    // two of one cable are told from two of different ones.
    std::vector<std::string> neighbours{};

    bool operator==(const HostAddress&) const = default;
    bool link_local() const { return host.starts_with("fe80:"); }
};

// A host that was heard: its link-local address, and the interface of this host.
struct Neighbour {
    std::string interface, address;
    bool operator==(const Neighbour&) const = default;
};
// As a word of a command line: "eth1=fe80::2,eth1=fe80::3". ParseNeighbours' errors: kUsage.
inline constexpr size_t kMostNeighbours = 64;
std::string NeighboursText(std::span<const Neighbour> neighbours);
Result<std::vector<Neighbour>> ParseNeighbours(std::string_view text);
// Gives each to the link-local addresses of its interface.
void AddNeighbours(std::span<const Neighbour> neighbours, std::vector<HostAddress>& addresses);

// Those of `addresses` in one of the networks of `words` ("10.0.1.0/24,eth2": CIDR or interface);
// "": all. Of more than kMostAddresses, link-local ones and those of bridges and other virtual
// interfaces are left out. Errors: kUsage (malformed), kNotFound (none is; names those that there
// are).
inline constexpr size_t kMostAddresses = 16;
Result<std::vector<HostAddress>> OnDataNet(const std::vector<HostAddress>& addresses,
                                           std::string_view words);
// The same of this host: of interfaces that are up and have a carrier, and of the loopback device
// those that others may reach (of hosts that are routed to).
Result<std::vector<HostAddress>> ListHostAddresses(std::string_view words = "");
// Whether the words are well-formed. Errors: kUsage.
Status CheckDataNet(std::string_view words);

// An address of this host, where it listens, and how the peer names it (a link-local one goes with
// the peer's interface).
struct Way {
    std::string listen;
    std::string dial;
    bool operator==(const Way&) const = default;
};
// How a peer with the addresses `theirs` may reach `mine`, best first, at most kMostWays.
// Link-local ones of a cable that is known to join both count as a common subnet. An
// address that both have (as containers' bridges do) leads nowhere. known: an address of mine that
// the peer is likely to reach, without a common subnet too; "": none. Of a tunnel, or of a subnet
// of its own (/32), it comes before all others: whoever names such an address means that network.
inline constexpr size_t kMostWays = 12;
std::vector<Way> WaysFrom(std::span<const HostAddress> theirs, std::span<const HostAddress> mine,
                          const std::string& known);

// One of theirs and one of mine in one subnet, but not in that of a container bridge (every host
// may have such a bridge with the same addresses). nullopt: there is none.
std::optional<std::pair<HostAddress, HostAddress>> CommonNetwork(
    std::span<const HostAddress> theirs, std::span<const HostAddress> mine);

// For the control plane. Unpack's errors: kCorrupt.
std::string PackAddresses(std::span<const HostAddress> addresses);
Result<std::vector<HostAddress>> UnpackAddresses(std::string_view text);

}  // namespace weft::net
