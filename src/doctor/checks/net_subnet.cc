// Detects two interfaces in one subnet: the kernel sends by the first, whatever the cable.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Moves the faster interface to another subnet, because users reach the host by the other one.
std::string FixOfSubnet(HostView& view, const NetDevice& i, const Ipv4& a, const NetDevice& j,
                        const Ipv4& b) {
    const bool first = i.megabits > j.megabits || j.wireless;
    const Ipv4& own = first ? a : b;
    const NetDevice& moved = first ? i : j;
    return fmt::format("another subnet for {0}: sudo ip addr del {1}/{2} dev {0}; {3}",
                       ShellWord(moved.name), own.Text(), own.prefix, AddAddress(view, moved.name));
}

// Two PCIe functions of one port, as in a DGX Spark: enp1s0f0np0 and enP2p1s0f0np0.
bool AreTwins(const NetDevice& a, const NetDevice& b) {
    constexpr size_t kDomain = 4;
    return a.pci.size() == 12 && b.pci.size() == 12 &&
           a.pci.substr(kDomain) == b.pci.substr(kDomain) && a.pci != b.pci;
}

}  // namespace

void RunNetSubnet(HostView& view, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    bool any = false;
    for (size_t i = 0; i < devices.size(); ++i) {
        for (size_t j = i + 1; j < devices.size(); ++j) {
            for (const Ipv4& a : devices[i].addresses) {
                for (const Ipv4& b : devices[j].addresses) {
                    if (a.prefix != b.prefix || a.prefix >= 31 || a.network() != b.network()) {
                        continue;
                    }
                    if (!devices[i].up || !devices[j].up || out.Count() > 8) continue;
                    // Each interface may have its own link-local address.
                    if (a.IsLinkLocal()) continue;
                    // A laptop is often in one network by cable and by Wi-Fi.
                    const bool harmless = devices[i].wireless || devices[j].wireless ||
                                          AreTwins(devices[i], devices[j]);
                    out.Add(
                        harmless ? Severity::kNote : Severity::kWarn,
                        fmt::format("{} ({}/{}, {}) and {} ({}/{}, {}) are in one subnet",
                                    devices[i].name, a.Text(), a.prefix, devices[i].SpeedText(),
                                    devices[j].name, b.Text(), b.prefix, devices[j].SpeedText()),
                        "a subnet of its own for each interface",
                        "the kernel sends by one of them for both addresses, and answers ARP "
                        "for both on either: traffic meant for the fast card takes the slow "
                        "one",
                        FixOfSubnet(view, devices[i], a, devices[j], b));
                }
            }
        }
        any = any || !devices[i].addresses.empty();
    }
    const Reading addresses = CommandLike(view, "ip -j addr");
    const bool read = std::ranges::any_of(devices, &NetDevice::addressed);
    if (!addresses.found() && !read && !devices.empty()) {
        return out.Note(
            fmt::format("the addresses of {} interfaces could not be read: ip -j addr{}",
                        devices.size(),
                        addresses.refused() ? ": " + addresses.text : " is not there"),
            "iproute2 5.0 or newer",
            "what depends on addresses was not looked at: subnets, routes, MTU across "
            "hosts",
            view.Complete()
                ? Install(view, {"iproute2", "iproute", "iproute2", "iproute2"}) + " (5.0 or newer)"
                : "'ip -j addr' into the snapshot");
    }
    if (any && out.empty()) out.Ok("each interface is in a subnet of its own");
}

}  // namespace weft::doctor::checks
