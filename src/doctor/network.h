// Network interfaces, IPv4 addresses and routes of a host, out of sysfs, ethtool and ip -j.
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
    bool physical = false;  // a device of its own, not a bridge, tunnel or loopback
    bool wireless = false;
    bool addressed = false;  // whether its addresses were read
    std::string duplex, driver, firmware, pci;
    std::vector<Ipv4> addresses;
    std::string SpeedText() const;  // "100 Gb/s"
};
// The first 4,096 links, and as many addresses.
std::vector<NetDevice> NetDevices(HostView& view);
const NetDevice* FindNetDevice(const std::vector<NetDevice>& devices, const std::string& name);

struct Route {
    Ipv4 to;
    bool has_gateway = false;
    std::string device;
    double metric = 0;
};
std::vector<Route> Routes(HostView& view);
// The route that a packet to `to` takes: the longest prefix, then the lowest metric.
const Route* RouteTo(const std::vector<Route>& routes, const Ipv4& to);

}  // namespace weft::doctor
