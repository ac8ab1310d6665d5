// Lists a host's addresses, and chooses the addresses by which one host reaches another.
//
// Hosts may share several networks, or each pair may have its own cable. So every rank announces
// all addresses of its host, and each pair of ranks chooses from both lists: first, addresses in
// common subnets, the fastest interface first; then the address that works for the control
// connection.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft::net {

// An address of this machine (which may be a loopback address), with its interface.
struct LocalAddress {
    std::string address;
    std::string netdev;
};
std::vector<LocalAddress> ListLocalAddresses();

struct HostAddress {
    std::string host;       // numeric, without scope
    int prefix = 0;         // prefix length of the address's subnet
    std::string interface;  // name of the interface that has the address
    int speed_mbps = 0;     // of the interface; 0: unknown
    bool bridge = false;    // the interface is a bridge, usually of containers or virtual machines
    // Local properties; not sent to others.
    bool tunnel = false;      // the interface belongs to WireGuard or another VPN, or is a
                              // point-to-point link
    bool is_virtual = false;  // the interface is not a hardware device
    // For a link-local address: the link-local addresses of other hosts whose beacons arrived on
    // this interface, if known. The list shows whether two hosts are on the same cable.
    std::vector<std::string> neighbours{};
    bool wireless = false;  // the interface is Wi-Fi, which reports no speed

    bool operator==(const HostAddress&) const = default;
    bool link_local() const { return host.starts_with("fe80:"); }
};

// A host that this host heard: its link-local address, and the interface that heard it.
struct Neighbour {
    std::string interface, address;
    bool operator==(const Neighbour&) const = default;
};
// Neighbors as text for a command line: "eth1=fe80::2,eth1=fe80::3". Errors of ParseNeighbours:
// kUsage.
inline constexpr size_t kMostNeighbours = 64;
std::string NeighboursText(std::span<const Neighbour> neighbours);
Result<std::vector<Neighbour>> ParseNeighbours(std::string_view text);
// Adds each neighbor to HostAddress::neighbours of its interface's link-local addresses.
void AddNeighbours(std::span<const Neighbour> neighbours, std::vector<HostAddress>& addresses);

// The `addresses` that are in one of the networks that `words` lists as CIDR or interface
// ("10.0.1.0/24,eth2"); "": all addresses. If these are more than kMostAddresses, drops link-local
// addresses and addresses of bridges and other virtual interfaces. Errors: kUsage (`words` is
// malformed), kNotFound (no address matches; the message names the addresses).
inline constexpr size_t kMostAddresses = 16;
Result<std::vector<HostAddress>> OnDataNet(const std::vector<HostAddress>& addresses,
                                           std::string_view words);
// OnDataNet for this host's addresses: the addresses of interfaces that are up and have a carrier,
// and loopback addresses that other hosts may reach (in routed networks).
Result<std::vector<HostAddress>> ListHostAddresses(std::string_view words = "");
// Checks the syntax of `words`. Errors: kUsage.
Status CheckDataNet(std::string_view words);

// An address on which this host listens, and the form of this address that the peer dials. (They
// differ for link-local addresses: their scope is an interface of the host that uses them.)
struct Way {
    std::string listen;
    std::string dial;
    bool operator==(const Way&) const = default;
};
// Routes by which a peer with the addresses `theirs` may reach this host with the addresses `mine`,
// best first, at most kMostWays. Link-local addresses on a cable between both hosts count as a
// common subnet. An address that both hosts have (as container bridges do) is skipped. known: an
// address of this host that the peer can probably reach even without a common subnet; "": none. If
// `known` belongs to a tunnel or is alone in its subnet (/32), its route comes first, because a
// user who names such an address means that network.
inline constexpr size_t kMostWays = 12;
std::vector<Way> WaysFrom(std::span<const HostAddress> theirs, std::span<const HostAddress> mine,
                          const std::string& known);

// A pair of addresses in one subnet. Ignores container bridges, because every host may have such a
// bridge with the same addresses. nullopt: there is no pair.
std::optional<std::pair<HostAddress, HostAddress>> CommonNetwork(
    std::span<const HostAddress> theirs, std::span<const HostAddress> mine);

// Addresses as text for the control connections. Errors of UnpackAddresses: kCorrupt.
std::string PackAddresses(std::span<const HostAddress> addresses);
Result<std::vector<HostAddress>> UnpackAddresses(std::string_view text);

// The network of a caller, which belongs to one customer: an IPv4 address ("10.0.0.1"), or the
// first four groups of an IPv6 address ("fd00:0:0:0"). from: "10.0.0.1:7000", "[fd00::1]:7000".
std::string NetworkOf(const std::string& from);

}  // namespace weft::net
