// Checks networks over Thunderbolt and USB4 cables.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kWholeGigabits = 40;  // two lanes of 20 Gb/s

void AskTrained(HostView& view, double gigabits, Findings& out) {
    HostLink so;
    so.kind = plan::LinkKind::kThunderbolt;
    so.gigabits = gigabits;
    HostLink otherwise = so;
    otherwise.gigabits = kWholeGigabits;
    if (gigabits > 0) out.AskCost(LinkQuestion(view, so, otherwise));
}

bool IsThunderbolt(const NetDevice& device) {
    return device.name.starts_with("thunderbolt") || device.driver == "thunderbolt-net" ||
           device.driver == "thunderbolt_net";
}

// The bridge that contains the device; "": none.
std::string BridgeOf(HostView& view, const NetDevice& device) {
    const std::string path = "sys/class/net/" + device.name;
    if (!device.master.empty() && !device.master.starts_with("bond")) return device.master;
    for (const std::string& name : view.List("sys/class/net")) {
        if (view.Has("sys/class/net/" + name + "/brif/" + device.name)) return name;
    }
    return view.List(path + "/brport").empty() ? "" : "a bridge";
}

// Proxmox fabrics route over cables without addresses; the host's own address is a /32 on lo or a
// dummy interface.
bool IsUnnumbered(HostView& view, const NetDevice& device) {
    const auto by_it = [&](const Route& route) {
        return route.device == device.name && route.to.prefix == 32;
    };
    if (std::ranges::any_of(Routes(view), by_it)) return true;
    for (const NetDevice& other : NetDevices(view)) {
        const auto alone = [](const Ipv4& address) { return address.prefix == 32; };
        if (other.name.starts_with("dummy") && std::ranges::any_of(other.addresses, alone))
            return true;
    }
    const std::string json = CommandLike(view, "ip -j addr").text;
    const size_t lo = json.find("\"ifname\":\"lo\"");
    const size_t next = json.find("\"ifname\"", lo == json.npos ? lo : lo + 1);
    if (lo != json.npos && Contains(json.substr(lo, next - lo), "\"prefixlen\":32")) return true;
    return Contains(CommandLike(view, "ip addr").text, "/32 scope global lo");
}

// Desktops and installers often put all cables into one bridge.
void LookAtBridge(HostView& view, const NetDevice& device, const std::string& bridge,
                  const std::string& read, Findings& out) {
    out.Warn(
        fmt::format("{}; a port of the bridge {}", read, bridge),
        "an interface of its own, with an address",
        "a bridge over Thunderbolt carries packets of 1500 bytes and costs a core; with cables "
        "from each host to each other it is a loop, and hosts are reached by the slow network "
        "whose address the bridge has",
        fmt::format("sudo ip link set dev {0} nomaster && sudo ip link set dev {0} mtu 65520 && "
                    "{1}; for good: {2}",
                    ShellWord(device.name), AddAddress(view, device.name),
                    Cure(view, "leave-bridge", {{"device", ShellWord(device.name)}})));
}

// A link to another host is an entry like "0-1", with rx_speed "20.0 Gb/s" and rx_lanes "2".
void LookAtLinks(HostView& view, Findings& out) {
    constexpr const char* kThunderboltFolder = "sys/bus/thunderbolt/devices";
    for (const std::string& name : view.List(kThunderboltFolder)) {
        const std::string path = std::string(kThunderboltFolder) + "/" + name;
        const auto speed = LeadingNumber(view.Text(path + "/rx_speed"));
        const auto lanes = LeadingNumber(view.Text(path + "/rx_lanes"));
        // Hosts have a service of their own; docks and drives do not carry a network.
        const bool host = view.Has(path + "/" + name + ".0") ||
                          view.Has(path + "/" + name + ".1") ||
                          view.Has(std::string(kThunderboltFolder) + "/" + name + ".0") ||
                          view.Has(path + "/maxhopid");
        if (!speed || !lanes || !host) continue;
        const double gigabits = *speed * *lanes;
        const std::string read = fmt::format("{}: {:g} Gb/s x{:g}", name, *speed, *lanes);
        if (gigabits >= 40) {
            out.Ok(read);
            continue;
        }
        out.Warn(read, "20 Gb/s x2",
                 fmt::format("{:.1f} GB/s on the cable instead of {:.1f}", gigabits / 8,
                             kWholeGigabits / 8),
                 "a short cable marked 40 Gb/s; unplug both ends and plug it in again, with other "
                 "network cables off (some boards then train at full speed)");
        AskTrained(view, gigabits, out);
    }
}

}  // namespace

void RunThunderbolt(HostView& view, Findings& out) {
    bool any = false;
    for (const NetDevice& device : NetDevices(view)) {
        if (!IsThunderbolt(device)) continue;
        any = true;
        const std::string read =
            fmt::format("{}: {}, MTU {}, {}", device.name,
                        device.up           ? "up"
                        : device.state_read ? "down"
                                            : "state not read",
                        device.mtu,
                        !device.addresses.empty() ? device.addresses.front().Text()
                        : device.addressed        ? "no IPv4 address"
                                                  : "addresses not read");
        if (const std::string bridge = BridgeOf(view, device); !bridge.empty()) {
            LookAtBridge(view, device, bridge, read, out);
        } else if (device.up && device.addresses.empty() && IsUnnumbered(view, device)) {
            out.Ok(read + ", routed without one");
        } else if ((!device.up && device.state_read) ||
                   (device.addressed && device.addresses.empty())) {
            out.Warn(read, "up, with an IPv4 address",
                     "the cable is there but carries nothing: peers are reached by another network",
                     AddAddress(view, device.name));
        } else if (device.mtu > 0 && device.mtu < 9000) {
            out.Note(read, "MTU 65520 on both ends",
                     fmt::format("{:.0f} times as many packets, each of which a core must handle",
                                 65520.0 / std::max(device.mtu, 1)),
                     SetMtu(view, device.name, 65520) + ", on both ends");
        } else {
            out.Ok(read);
        }
    }
    if (any) LookAtLinks(view, out);
}

}  // namespace weft::doctor::checks
