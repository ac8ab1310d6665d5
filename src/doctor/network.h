// Network interfaces, IPv4 addresses and routes of a host. The facts come from sysfs, ethtool and
// ip -j; in a handmade snapshot also from the output of `ip addr`, `ip link` and `ip route`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct Ipv4 {
    uint32_t bits = 0;
    int prefix = 32;
    uint32_t network() const;
    std::string Text() const;        // "10.0.0.1"
    std::string PrefixText() const;  // "10.0.0.1/24"
    // Whether both are in one network, with the same prefix.
    bool Shares(const Ipv4& other) const {
        return prefix == other.prefix && network() == other.network();
    }
    // Whether one of the networks contains the other. (A default route overlaps nothing.)
    bool Overlaps(const Ipv4& other) const;
    bool IsLoopback() const { return bits >> 24 == 127; }
    bool IsLinkLocal() const { return bits >> 16 == 0xa9fe; }
    // Whether the address is private (RFC 1918) or shared by a carrier's customers (RFC 6598).
    bool IsPrivate() const {
        return bits >> 24 == 10 || bits >> 20 == 0xac1 || IsHome() || IsShared();
    }
    // Whether only this host's cluster, home or cable can have the other addresses of the network.
    bool InPrivateNetwork() const { return (IsPrivate() && !IsShared()) || IsLinkLocal(); }
    bool IsHome() const { return bits >> 16 == 0xc0a8; }                // 192.168.0.0/16
    bool IsShared() const { return bits >> 22 == (0x64400000 >> 22); }  // 100.64.0.0/10
    bool operator==(const Ipv4&) const = default;
};
// "10.0.0.1" or "10.0.0.0/24".
std::optional<Ipv4> ParseIpv4(std::string_view text);
// The address in a GID, "0000:0000:0000:0000:0000:ffff:0a00:0001".
std::optional<Ipv4> ParseMappedIpv4(std::string_view gid);
inline constexpr std::string_view kMappedIpv4 = "0000:0000:0000:0000:0000:ffff:";

struct NetDevice {
    std::string name;
    double megabits = 0;  // 0: unknown
    int mtu = 0;
    bool up = false;
    bool state_read = false;  // whether `up` is known
    bool physical = false;    // has hardware of its own: not a bridge, tunnel or loopback
    bool wireless = false;
    bool addressed = false;  // whether its addresses are known
    bool over_card = false;  // a bond, bridge or VLAN with a card of this host
    std::string duplex, driver, firmware, pci;
    std::string master;        // the bridge, bond or team that contains it
    std::string lower;         // the interface under a VLAN or the like
    double most_megabits = 0;  // fastest mode that ethtool lists; 0: unknown
    std::vector<Ipv4> addresses;
    std::string SpeedText() const;  // "100 Gb/s"
    // The number at the end of a VLAN's name ("eth0.100", "vlan100"); nullopt: unknown.
    std::optional<int64_t> VlanId() const;
};
// Parses output of `ip addr`, `ip -d link` and similar commands: name, MTU, state, master and IPv4
// addresses of each link.
std::vector<NetDevice> ParseIpText(std::string_view text);
// The interfaces of the host. At most 4,096 links and 4,096 addresses are read.
const std::vector<NetDevice>& NetDevices(HostView& view);
// The interface of this name; null: none.
const NetDevice* FindNetDevice(HostView& view, std::string_view name);
// Whether `ip addr` prints "link/infiniband" below the interface's line.
bool IsInfiniband(std::string_view ip, std::string_view interface);
// Whether interfaces of containers or virtual machines have such names. These interfaces do not
// lead to other hosts.
bool IsOfContainers(std::string_view name);
// Whether VPNs give such names to their interfaces: Tailscale, WireGuard, ZeroTier, Nebula.
bool IsVpn(std::string_view name);
// Output of `tailscale status`, if Tailscale has an interface.
Reading TailscaleStatus(HostView& view);
// The addresses of hosts to which Tailscale sends packets through a relay (DERP).
const std::set<std::string>& RelayedAddresses(HostView& view);
// Whether the name is safe as an argument of a command line.
bool IsPlainName(std::string_view name);
// Whether the driver is one of USB network adapters.
bool IsUsbDriver(std::string_view driver);

// Whether the interface is IPoIB. unread: the result if the kernel's type of it was not read.
bool IsIpoib(HostView& view, const NetDevice& device, bool unread = false);

struct Route {
    Ipv4 to;
    bool has_gateway = false;
    std::string device;
    double metric = 0;
    std::string gateway;  // its address; "": none, or no IPv4 address
};
const std::vector<Route>& Routes(HostView& view);
std::vector<Route> ParseRouteText(std::string_view text);
// The fastest mode that `ethtool` lists as supported, in Mb/s; 0: unknown.
double FastestMode(std::string_view ethtool);
// The route that a packet to `to` takes: the one with the longest prefix; among these, with the
// lowest metric. Returns null if there is no route.
const Route* RouteTo(HostView& view, const Ipv4& to);

// A path to another host over a subnet that both share, or, if they share none but home networks,
// over the VPNs that both may have.
struct Path {
    std::string device, address, peer;  // own interface; peer's address; peer's name
    int mtu = 0;                        // of `device`
    bool vpn = false;                   // only interfaces' names show that the path exists
};
// The paths from `host` to every other host.
std::vector<Path> PathsFrom(HostView& host, Hosts hosts);

inline constexpr int kSmallPacket = 576;  // bytes; every path must carry such packets
// A command that sends one packet of `bytes` (with headers), without fragmentation, and waits a
// second for the reply.
std::string PingCommand(const Path& path, int bytes);
int PingPayload(int bytes);  // without the headers
// The same command for a payload and an address that are texts, such as "$1".
std::string PingWords(std::string_view payload, std::string_view address);

}  // namespace weft::doctor
