// Firewalls that drop what ranks say to each other.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/firewalld.h"
#include "doctor/network.h"
#include "doctor/packet_filter.h"
#include "doctor/rdma.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kWhy =
    "workers listen on the port of --listen, and data links on ports of the system's choice: what "
    "is dropped shows as time-outs, not as refusals";
constexpr const char* kExpected = "the fabric's interface or subnet accepted";

// Whether a rule opens a network ("Anywhere   ALLOW IN   10.0.0.0/24") or an interface ("Anywhere
// on enp1s0   ALLOW IN   Anywhere").
bool UfwOpens(std::string_view status) {
    for (std::string_view line : Lines(status)) {
        const size_t at = line.find("ALLOW IN");
        if (at == std::string_view::npos || !line.starts_with("Anywhere")) continue;
        if (Contains(line.substr(0, at), " on ") || Contains(line.substr(at), "/")) return true;
    }
    return false;
}

// The interfaces that ranks would use: of RDMA ports, InfiniBand and Thunderbolt, else the fastest
// cards; those that are up and have an address. None where that was not read.
std::vector<NetDevice> FabricDevices(HostView& view) {
    const std::vector<NetDevice> all = NetDevices(view);
    std::vector<std::string> rdma;
    for (const RdmaPort& port : RdmaPorts(view)) {
        for (std::string& name : RdmaInterfaces(view, port)) rdma.push_back(std::move(name));
    }
    std::vector<NetDevice> special, cards;
    double fastest = 0;
    for (const NetDevice& device : all) {
        if (!device.up || device.wireless || device.addresses.empty()) continue;
        const bool fabric = std::ranges::find(rdma, device.name) != rdma.end() ||
                            device.name.starts_with("thunderbolt") ||
                            view.Text("sys/class/net/" + device.name + "/type") == "32";
        if (fabric) special.push_back(device);
        if (device.physical) fastest = std::max(fastest, device.megabits);
    }
    if (!special.empty()) return special;
    for (const NetDevice& device : all) {
        const bool usable = device.up && !device.wireless && !device.addresses.empty();
        if (usable && device.physical && device.megabits >= fastest) cards.push_back(device);
    }
    return cards;
}

std::string NamesOf(const std::vector<NetDevice>& devices) {
    std::vector<std::string> names;
    for (const NetDevice& device : devices) names.push_back(device.name);
    return Joined(names);
}

// The subnet of the fabric for a command; a usual one where it is not known.
std::string SubnetOf(const std::vector<NetDevice>& devices) {
    if (devices.empty()) return "10.0.0.0/24";
    const Ipv4& own = devices.front().addresses.front();
    return fmt::format("{}/{}", Ipv4{own.network(), 32}.Text(), own.prefix);
}

// Through the best of the fabric's interfaces.
Passage BestPassage(const PacketFilter& filter, const std::vector<NetDevice>& devices) {
    if (devices.empty()) return PassageBy(filter, nullptr);
    Passage best = Passage::kDropped;
    for (const NetDevice& device : devices) {
        const Passage one = PassageBy(filter, &device);
        if (one == Passage::kAccepted) return one;
        if (one == Passage::kUncertain) best = one;
    }
    return best;
}

bool IsIn(const Ipv4& address, const FirewallZone& zone) {
    return std::ranges::any_of(zone.sources, [&](const Ipv4& source) {
        return Ipv4{address.bits, source.prefix}.network() == source.network();
    });
}

// The zone that a peer of the device comes in by; null where it was not read.
const FirewallZone* ZoneOf(const std::vector<FirewallZone>& zones, const NetDevice& device) {
    const FirewallZone* by_default = nullptr;
    for (const FirewallZone& zone : zones) {
        for (const Ipv4& address : device.addresses) {
            if (IsIn(address, zone)) return &zone;
        }
    }
    for (const FirewallZone& zone : zones) {
        if (std::ranges::find(zone.interfaces, device.name) != zone.interfaces.end()) return &zone;
        if (zone.is_default) by_default = &zone;
    }
    return by_default;
}

void NotTold(const std::string& read, Findings& out) {
    out.Note(read, kExpected, kWhy, "sudo weft doctor --check firewall");
}

void LookAtZones(HostView& view, Findings& out) {
    const Reading active = view.Command("firewall-cmd --get-active-zones");
    std::vector<FirewallZone> zones = ParseZones(active.text);
    // An active zone has interfaces or sources.
    const bool ends_early =
        !zones.empty() && zones.back().interfaces.empty() && zones.back().sources.empty();
    for (const char* words : {"firewall-cmd --list-all-zones", "firewall-cmd --list-all"}) {
        AddZones(zones, ParseZones(view.Command(words).text));
    }
    std::erase_if(zones, [](const FirewallZone& zone) {
        return zone.interfaces.empty() && zone.sources.empty() && !zone.is_default;
    });
    if (zones.empty()) return NotTold("firewalld: running; its zones could not be read", out);
    const std::vector<NetDevice> devices = FabricDevices(view);
    std::string closed, interface;
    bool uncertain = active.cut || ends_early;
    // With nothing known of the interfaces: any zone that lets ranks in is taken for theirs.
    for (size_t i = 0; i < std::max<size_t>(devices.size(), 1); ++i) {
        const FirewallZone* zone = devices.empty() ? nullptr : ZoneOf(zones, devices[i]);
        for (const FirewallZone& one : zones) {
            if (zone != nullptr && zone != &one) continue;
            const Passage passage = one.Opens();
            if (passage == Passage::kAccepted) {
                return out.Ok(fmt::format("firewalld: {} in the zone {}, which lets ranks in",
                                          devices.empty() ? "an interface" : devices[i].name,
                                          one.name));
            }
            uncertain = uncertain || passage == Passage::kUncertain;
            if (closed.empty()) closed = one.name;
        }
        if (interface.empty() && !devices.empty()) interface = devices[i].name;
    }
    if (uncertain)
        return NotTold("firewalld: running; ports of the zone " + closed +
                           " could not "
                           "be read",
                       out);
    if (interface.empty()) {
        for (const FirewallZone& zone : zones) {
            if (!zone.interfaces.empty()) interface = zone.interfaces.back();
        }
    }
    out.Warn(fmt::format("firewalld: running, {} in the zone {}, which lets no ranks in",
                         interface.empty() ? "all interfaces" : interface, closed),
             kExpected, kWhy,
             fmt::format("sudo firewall-cmd --permanent --zone=trusted --change-interface={} && "
                         "sudo firewall-cmd --reload",
                         interface.empty() ? "INTERFACE" : Quoted(interface)));
}

bool LookAtUfw(HostView& view, Findings& out) {
    const Reading ufw = view.Command("ufw status verbose");
    if (!Contains(ufw.text, "Status: active") || Contains(ufw.text, "allow (incoming)")) {
        return false;
    }
    if (UfwOpens(ufw.text)) {
        out.Ok("ufw: active, with rules that open a network");
    } else {
        out.Warn("ufw: active, incoming denied by default", kExpected, kWhy,
                 fmt::format("sudo ufw allow from {} (the fabric's subnet)",
                             SubnetOf(FabricDevices(view))));
    }
    return true;
}

void Run(HostView& view, Findings& out) {
    if (LookAtUfw(view, out)) return;
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") return LookAtZones(view, out);
    const Reading nft = view.Command("nft list ruleset");
    Reading iptables = view.Command("iptables -S");
    if (!iptables.found()) iptables = view.Command("iptables -S INPUT");
    if (!nft.found() && !iptables.found()) {
        if (nft.refused() || iptables.refused()) {
            NotTold(
                "the firewall's rules can't be read: " + (nft.refused() ? nft.text : iptables.text),
                out);
        }
        return;
    }
    const std::vector<NetDevice> devices = FabricDevices(view);
    const Passage by_nft = BestPassage(ParseNft(nft.found() ? nft.text : ""), devices);
    const Passage by_iptables =
        BestPassage(ParseIptables(iptables.found() ? iptables.text : ""), devices);
    const std::string who = devices.empty() ? "no interface or network is accepted as a whole"
                                            : NamesOf(devices) + " is not accepted as a whole";
    const std::string subnet = SubnetOf(devices);
    if (by_nft == Passage::kDropped && !nft.cut) {
        return out.Warn("nftables: input is dropped by default, and " + who, kExpected, kWhy,
                        fmt::format("sudo nft insert rule inet filter input ip saddr {} accept "
                                    "(the fabric's subnet; keep it in /etc/nftables.conf)",
                                    subnet));
    }
    if (by_iptables == Passage::kDropped && !iptables.cut) {
        return out.Warn(
            "iptables: input is dropped by default, and " + who, kExpected, kWhy,
            fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT (the fabric's subnet)", subnet));
    }
    if (by_nft != Passage::kAccepted || by_iptables != Passage::kAccepted) {
        return NotTold(
            "the firewall drops input by default; whether its rules let the fabric's "
            "subnet in can't be told from here",
            out);
    }
    out.Ok("no rule that drops input as a whole");
}

}  // namespace

const Check kFirewall = {
    .name = "firewall",
    .what = "Firewalls that would drop ranks' connections.",
    .reads = "ufw status verbose, firewall-cmd, nft list ruleset, iptables -S",
    .why = "A dropped connection shows as a time-out of seconds, never as an error.",
    .run = Run,
};

}  // namespace weft::doctor::checks
