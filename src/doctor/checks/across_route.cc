// Checks the interfaces over which hosts reach each other.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

struct Host {
    std::string name;
    std::vector<NetDevice> devices;
    std::vector<Route> routes;
    const NetDevice* fastest = nullptr;  // among those that are up
    HostView* view = nullptr;
};

bool IsCard(const NetDevice& device) {
    return device.up && !device.wireless && device.megabits > 0 && device.master.empty() &&
           !IsOfContainers(device.name);
}

// The interface of `from` by which packets to `device` of another host leave.
const NetDevice* WayTo(const Host& from, const NetDevice& device) {
    for (const Ipv4& address : device.addresses) {
        if (address.IsLoopback()) continue;
        const Route* route = RouteTo(from.routes, address);
        if (route != nullptr) return FindNetDevice(from.devices, route->device);
    }
    return nullptr;
}

// The link of the fastest cards: RDMA if the card has an RDMA port that is up.
HostLink FastLink(const Host& from, double megabits) {
    HostLink link;
    for (const RdmaPort& port : RdmaPorts(*from.view)) {
        const std::vector<std::string> interfaces = RdmaInterfaces(*from.view, port);
        const bool mine = std::ranges::find(interfaces, from.fastest->name) != interfaces.end();
        if (const auto rdma = PortLink(port); rdma && mine) link = *rdma;
    }
    link.gigabits = megabits / 1000;
    return link;
}

void AskSlowWay(const Host& from, const NetDevice& way, double possible, Findings& out) {
    const std::optional<HostLink> so = PortLink(way);
    if (so) out.AskCost(LinkQuestion(*from.view, *so, FastLink(from, possible)));
}

void LookAcrossRoute(const Host& from, const Host& to, Findings& out) {
    if (from.fastest == nullptr || to.fastest == nullptr) return;
    if (!from.fastest->addressed || !to.fastest->addressed) return;
    const double possible = std::min(from.fastest->megabits, to.fastest->megabits);
    const std::string expected = fmt::format("{} reaches {} by {} ({})", from.name, to.name,
                                             from.fastest->name, from.fastest->SpeedText());
    if (to.fastest->addresses.empty() || from.fastest->addresses.empty()) {
        const Host& bare = to.fastest->addresses.empty() ? to : from;
        return out.Fail(fmt::format("{}: {} ({}) has no IPv4 address", bare.name,
                                    bare.fastest->name, bare.fastest->SpeedText()),
                        expected, "peers can only be reached by a slower network",
                        fmt::format("on {}: {}", ShellWord(bare.name),
                                    AddAddress(*bare.view, bare.fastest->name)));
    }
    const NetDevice* way = WayTo(from, *to.fastest);
    const Ipv4& address = to.fastest->addresses.front();
    if (way == nullptr) {
        return out.Warn(fmt::format("{} has no route to {} ({} of {})", from.name, address.Text(),
                                    to.fastest->name, to.name),
                        expected, "these cards can't reach each other",
                        "addresses of one subnet on both cards");
    }
    const std::string read =
        fmt::format("{} reaches {} ({} of {}) by {} ({})", from.name, address.Text(),
                    to.fastest->name, to.name, way->name, way->SpeedText());
    if (way->megabits >= possible * 0.99 || way->megabits <= 0) return out.Ok(read, expected);
    const double slow = way->megabits / 8000, fast = possible / 8000;
    out.Fail(
        read, expected, fmt::format("{:.2f} GB/s instead of {:.2f}", slow, fast),
        fmt::format("give {} on {} an address in the subnet of {}/{}, or {} on {} one in that of "
                    "{}: sudo ip addr add; and name hosts by those addresses",
                    ShellWord(from.fastest->name), ShellWord(from.name), address.Text(),
                    address.prefix, ShellWord(to.fastest->name), ShellWord(to.name),
                    from.fastest->addresses.front().Text()));
    AskSlowWay(from, *way, possible, out);
}

// A host's addresses on Thunderbolt cables, without those with a route per address.
std::vector<Ipv4> CableAddresses(const Host& host) {
    std::vector<Ipv4> addresses;
    for (const NetDevice& device : host.devices) {
        const bool cable =
            device.name.starts_with("thunderbolt") || device.driver.starts_with("thunderbolt");
        if (!cable || !device.up) continue;
        for (const Ipv4& address : device.addresses) {
            if (address.prefix < 31 && !address.IsLinkLocal()) addresses.push_back(address);
        }
    }
    return addresses;
}

// Both ends of a cable must be in one subnet.
void LookAtCables(const Host& a, const Host& b, Findings& out) {
    const std::vector<Ipv4> one = CableAddresses(a), two = CableAddresses(b);
    if (one.empty() || two.empty()) return;
    const auto meets = [&](const Ipv4& mine) {
        return std::ranges::any_of(two, [&](const Ipv4& other) {
            return mine.prefix == other.prefix && mine.network() == other.network();
        });
    };
    if (std::ranges::any_of(one, meets)) return;
    const auto text = [](const Ipv4& address) {
        return fmt::format("{}/{}", address.Text(), address.prefix);
    };
    out.Fail(fmt::format("Thunderbolt: {} on {} and {} on {} are in different subnets",
                         text(one.front()), a.name, text(two.front()), b.name),
             "both ends of the cable in one subnet",
             "the hosts do not reach each other by the cable: they use another network",
             fmt::format("on {}: an address of the subnet of {} for the Thunderbolt interface",
                         ShellWord(b.name), text(one.front())));
}

}  // namespace

void AcrossRoute(Hosts hosts, Findings& out) {
    std::vector<Host> known;
    for (const auto& view : hosts) {
        Host host{view->host(), NetDevices(*view), Routes(*view), nullptr, view.get()};
        known.push_back(std::move(host));
    }
    for (Host& host : known) {
        for (const NetDevice& device : host.devices) {
            if (!IsCard(device)) continue;
            if (host.fastest == nullptr || device.megabits > host.fastest->megabits) {
                host.fastest = &device;
            }
        }
    }
    if (known.size() == 2) LookAtCables(known[0], known[1], out);
    for (const Host& from : known) {
        for (const Host& to : known) {
            if (&from != &to && !from.routes.empty() && out.Count() < 64)
                LookAcrossRoute(from, to, out);
        }
    }
}

}  // namespace weft::doctor::checks
