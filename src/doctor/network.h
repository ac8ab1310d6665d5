// Network interfaces, IPv4 addresses and routes of a host, out of sysfs, ethtool and ip -j; in a
// snapshot made by hand also out of what `ip addr`, `ip link` and `ip route` print.
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
};
// "10.0.0.1" or "10.0.0.0/24".
std::optional<Ipv4> ParseIpv4(std::string_view text);

struct NetDevice {
    std::string name;
    double megabits = 0;  // 0: not known
    int mtu = 0;
    bool up = false;
    bool state_read = false;  // whether `up` was
    bool physical = false;    // a device of its own, not a bridge, tunnel or loopback
    bool wireless = false;
    bool addressed = false;  // whether its addresses were read
    bool over_card = false;  // a bond or bridge with a card of this host in it
    std::string duplex, driver, firmware, pci;
    std::string master;        // the bridge, bond or team that it is a part of
    double most_megabits = 0;  // of the modes that ethtool lists; 0: not known
    std::vector<Ipv4> addresses;
    std::string SpeedText() const;  // "100 Gb/s"
};
// What `ip addr`, `ip -d link` and their like print; of each link name, MTU, state, master and IPv4
// addresses. Routes of `ip route`.
std::vector<NetDevice> ParseIpText(std::string_view text);
// The first 4,096 links, and as many addresses.
std::vector<NetDevice> NetDevices(HostView& view);
// Whether the name is one of those that containers and virtual machines get: no way to other hosts.
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
// The fastest of the modes that `ethtool` lists as supported, in Mb/s; 0: not told.
double FastestMode(std::string_view ethtool);
// The route that a packet to `to` takes: the longest prefix, then the lowest metric.
const Route* RouteTo(const std::vector<Route>& routes, const Ipv4& to);

}  // namespace weft::doctor
