// Network interfaces, IPv4 addresses and routes of a host, from sysfs, ethtool and ip -j; in a
// handmade snapshot also from the output of `ip addr`, `ip link` and `ip route`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct Ipv4 {
    uint32_t bits = 0;
    int prefix = 32;
    uint32_t network() const;
    std::string Text() const;  // "10.0.0.1"
    bool IsLoopback() const { return bits >> 24 == 127; }
    bool IsLinkLocal() const { return bits >> 16 == 0xa9fe; }
    bool operator==(const Ipv4&) const = default;
};
// "10.0.0.1" or "10.0.0.0/24".
std::optional<Ipv4> ParseIpv4(std::string_view text);

struct NetDevice {
    std::string name;
    double megabits = 0;  // 0: unknown
    int mtu = 0;
    bool up = false;
    bool state_read = false;  // `up` was read
    bool physical = false;    // has hardware of its own: not a bridge, tunnel or loopback
    bool wireless = false;
    bool addressed = false;  // its addresses were read
    bool over_card = false;  // a bond or bridge with a card of this host
    std::string duplex, driver, firmware, pci;
    std::string master;        // the bridge, bond or team that contains it
    std::string lower;         // the interface under a VLAN or the like
    double most_megabits = 0;  // fastest mode that ethtool lists; 0: unknown
    std::vector<Ipv4> addresses;
    std::string SpeedText() const;  // "100 Gb/s"
    // The number at the end of a VLAN's name ("eth0.100", "vlan100"); nullopt: unknown.
    std::optional<int64_t> VlanId() const;
};
// Parses output of `ip addr`, `ip -d link` and the like: name, MTU, state, master and IPv4
// addresses of each link; and routes of `ip route`.
std::vector<NetDevice> ParseIpText(std::string_view text);
// At most 4,096 links and 4,096 addresses.
std::vector<NetDevice> NetDevices(HostView& view);
// The name is one that containers and virtual machines get; it does not lead to other hosts.
bool IsOfContainers(const std::string& name);
const NetDevice* FindNetDevice(const std::vector<NetDevice>& devices, const std::string& name);

struct Route {
    Ipv4 to;
    bool has_gateway = false;
    std::string device;
    double metric = 0;
};
std::vector<Route> Routes(HostView& view);
std::vector<Route> ParseRouteText(std::string_view text);
// The fastest mode that `ethtool` lists as supported, in Mb/s; 0: unknown.
double FastestMode(std::string_view ethtool);
// Route of a packet to `to`: the longest prefix, then the lowest metric.
const Route* RouteTo(const std::vector<Route>& routes, const Ipv4& to);

}  // namespace weft::doctor
