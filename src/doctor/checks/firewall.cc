// Firewalls that drop what ranks say to each other.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cures.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/firewalld.h"
#include "doctor/iptables_text.h"
#include "doctor/network.h"
#include "doctor/packet_filter.h"
#include "doctor/ufw.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kWhy =
    "workers listen on the port of --listen, and data links on ports of the system's choice: what "
    "is dropped shows as time-outs, not as refusals";
constexpr const char* kExpected = "the fabric's interface or subnet accepted";
// Where no interface of the fabric is known.
constexpr const char* kOpenIt =
    "accept all that comes in by the fabric's interface ('ip -br addr' lists them)";

std::string NamesOf(const std::vector<NetDevice>& devices) {
    std::vector<std::string> names;
    for (const NetDevice& device : devices) names.push_back(device.name);
    return Joined(names);
}

// The subnet of the fabric for a command; "" where it is not known.
std::string SubnetOf(const std::vector<NetDevice>& devices) {
    if (devices.empty() || devices.front().addresses.empty()) return "";
    const Ipv4& own = devices.front().addresses.front();
    return fmt::format("{}/{}", Ipv4{own.network(), 32}.Text(), own.prefix);
}

// Through the best of the fabric's interfaces.
Passage BestPassage(const PacketFilter& filter, const std::vector<NetDevice>& devices,
                    std::string* drops = nullptr) {
    if (devices.empty()) return PassageBy(filter, nullptr, drops);
    Passage best = Passage::kDropped;
    for (const NetDevice& device : devices) {
        const Passage one = PassageBy(filter, &device, drops);
        if (one == Passage::kAccepted) return one;
        if (one == Passage::kUncertain) best = one;
    }
    return best;
}

// The zones that peers of the device may come in by, that of its interface last; all where it was
// not read.
std::vector<const FirewallZone*> ZonesOf(const std::vector<FirewallZone>& zones,
                                         const NetDevice* device) {
    std::vector<const FirewallZone*> found, all;
    const FirewallZone* by_default = nullptr;
    bool whole = false;  // one of them takes the whole subnet
    for (const FirewallZone& zone : zones) {
        all.push_back(&zone);
        if (zone.is_default) by_default = &zone;
        if (device == nullptr) continue;
        bool meets = false;
        for (const Ipv4& address : device->addresses) {
            for (const Ipv4& source : zone.sources) {
                const int prefix = std::min(address.prefix, source.prefix);
                if (Ipv4{address.bits, prefix}.network() != Ipv4{source.bits, prefix}.network()) {
                    continue;
                }
                meets = true;
                whole = whole || source.prefix <= address.prefix;
            }
        }
        if (meets) found.push_back(&zone);
    }
    if (device == nullptr) return all;
    if (whole) return found;
    for (const FirewallZone& zone : zones) {
        if (std::ranges::find(zone.interfaces, device->name) == zone.interfaces.end()) continue;
        found.push_back(&zone);
        return found;
    }
    if (by_default == nullptr) return all;
    found.push_back(by_default);
    return found;
}

void NotTold(const std::string& read, Findings& out) {
    out.Note(read, kExpected, kWhy, "sudo weft doctor --check firewall");
}

struct Zones {
    std::vector<FirewallZone> list;
    bool cut = false;  // some may be missing
};

Zones ReadZones(HostView& view) {
    const Reading active = view.Command("firewall-cmd --get-active-zones");
    Zones zones{ParseZones(active.text), active.cut};
    // An active zone has interfaces or sources.
    if (!zones.list.empty()) {
        const FirewallZone& last = zones.list.back();
        const bool placed =
            !last.interfaces.empty() || !last.sources.empty() || last.unknown_sources;
        zones.cut = zones.cut || !placed;
    }
    for (const char* words : {"firewall-cmd --list-all-zones", "firewall-cmd --list-all"}) {
        const Reading told = view.Command(words);
        zones.cut = zones.cut || told.cut;
        AddZones(zones.list, ParseZones(told.text));
    }
    std::erase_if(zones.list, [](const FirewallZone& zone) {
        return zone.interfaces.empty() && zone.sources.empty() && !zone.unknown_sources &&
               !zone.is_default;
    });
    return zones;
}

std::string TrustInterface(const std::string& interface) {
    return fmt::format(
        "sudo firewall-cmd --permanent --zone=trusted --change-interface={} && sudo firewall-cmd "
        "--reload",
        ShellWord(interface));
}

void ClosedZone(const std::vector<FirewallZone>& zones, const std::string& closed,
                std::string interface, Findings& out) {
    for (const FirewallZone& zone : zones) {
        if (interface.empty() && !zone.interfaces.empty()) interface = zone.interfaces.back();
    }
    const std::string fix = interface.empty() ? "the fabric's interface ('ip -br addr' lists them) "
                                                "into firewalld's zone trusted"
                                              : TrustInterface(interface);
    out.Warn(fmt::format("firewalld: running, {} in the zone {}, which lets no ranks in",
                         interface.empty() ? "all interfaces" : interface, closed),
             kExpected, kWhy, fix);
}

void LookAtZones(HostView& view, Findings& out) {
    const Zones zones = ReadZones(view);
    if (zones.list.empty()) {
        return NotTold("firewalld: running; its zones could not be read", out);
    }
    const std::vector<NetDevice> devices = FabricDevices(view);
    std::string closed;
    bool uncertain = zones.cut;
    // With nothing known of the interfaces: any zone that lets ranks in is taken for theirs.
    for (size_t i = 0; i < std::max<size_t>(devices.size(), 1); ++i) {
        const NetDevice* device = devices.empty() ? nullptr : &devices[i];
        for (const FirewallZone* zone : ZonesOf(zones.list, device)) {
            const Passage passage = zone->Opens(device);
            if (passage == Passage::kAccepted) {
                return out.Ok(fmt::format("firewalld: {} in the zone {}, which lets ranks in",
                                          device == nullptr ? "an interface" : device->name,
                                          zone->name));
            }
            uncertain = uncertain || passage == Passage::kUncertain;
            if (i == 0) closed = zone->name;
        }
        for (const FirewallZone& zone : zones.list) {
            const bool opens = zone.unknown_sources && zone.Opens(device) != Passage::kDropped;
            uncertain = uncertain || opens;
        }
    }
    if (uncertain) {
        return NotTold("firewalld: running; whether the zone " + closed +
                           " lets ranks in can't be told from here",
                       out);
    }
    ClosedZone(zones.list, closed, devices.empty() ? "" : devices.front().name, out);
}

bool LookAtUfw(HostView& view, Findings& out) {
    Reading status = view.Command("ufw status verbose");
    if (!status.found() && !view.Complete()) status = view.Command("ufw status");
    const Ufw ufw = ParseUfw(status.text);
    if (!ufw.active) return false;
    const std::vector<NetDevice> devices = FabricDevices(view);
    const Passage passage = BestPassage({{"ufw", ufw.input}}, devices);
    // Open by default: the kernel's rules tell more.
    if (!ufw.input.drops && passage != Passage::kDropped) return false;
    if (passage == Passage::kAccepted) {
        out.Ok("ufw: active, with rules that open a network");
    } else if (passage == Passage::kUncertain || status.cut) {
        NotTold("ufw: active; whether its rules let the fabric's subnet in can't be told", out);
    } else {
        const bool denies = std::ranges::any_of(ufw.input.rules, [](const FilterRule& rule) {
            return rule.verdict == FilterRule::Verdict::kDrop;
        });
        const std::string who =
            devices.empty() ? "" : ", and no rule opens the network of " + NamesOf(devices);
        out.Warn(ufw.input.drops ? "ufw: active, incoming denied by default" + who
                                 : "ufw: active, with rules that deny the fabric's network",
                 kExpected, kWhy,
                 devices.empty() ? kOpenIt
                                 : fmt::format("sudo ufw {}allow from {}", denies ? "prepend " : "",
                                               SubnetOf(devices)));
    }
    return true;
}

// Who wrote rules that drop the fabric's packets.
enum class Manager { kNobody, kUfw, kFirewalld, kProxmox, kNixOs };
Manager ManagerOf(HostView& view, const PacketFilter& filter, const std::string& drops) {
    if (DistributionOf(view) == Distribution::kNixOs) return Manager::kNixOs;
    if (drops.starts_with("inet:firewalld ")) return Manager::kFirewalld;
    if (drops.starts_with("inet:proxmox-firewall")) return Manager::kProxmox;
    for (const auto& [name, chain] : filter) {
        const std::string_view bare = std::string_view(name).substr(name.rfind(' ') + 1);
        if (bare.starts_with("nixos-fw") || name.starts_with("inet:nixos-fw ")) {
            return Manager::kNixOs;
        }
        if (bare.starts_with("ufw-")) return Manager::kUfw;
        if (bare.starts_with("PVEFW-")) return Manager::kProxmox;
    }
    return Manager::kNobody;
}

// Lets the subnet in by `command`, a rule of the kernel's; to keep it is up to what manages rules.
std::string FixOf(Manager manager, const std::vector<NetDevice>& devices,
                  const std::string& command) {
    const std::string subnet = SubnetOf(devices);
    switch (manager) {
        case Manager::kNixOs:
            return Configure(fmt::format("networking.firewall.trustedInterfaces = [ {} ];",
                                         NixString(devices.front().name))) +
                   fmt::format("; until then: sudo iptables -I INPUT -s {} -j ACCEPT", subnet);
        case Manager::kUfw: return fmt::format("sudo ufw allow from {}", subnet);
        case Manager::kFirewalld: return TrustInterface(devices.front().name);
        case Manager::kProxmox:
            return fmt::format(
                "pvesh create /cluster/firewall/rules --type in --action ACCEPT --source {} "
                "--enable 1",
                subnet);
        case Manager::kNobody: break;
    }
    return command;
}

// Lets the fabric in where nft's chain `drops`, "inet:filter input", drops it.
std::string NftFix(HostView& view, const PacketFilter& filter, const std::string& drops,
                   const std::vector<NetDevice>& devices) {
    if (devices.empty()) return kOpenIt;
    const size_t colon = drops.find(':'), blank = drops.rfind(' ');
    if (colon == drops.npos || blank == drops.npos || blank < colon) return kOpenIt;
    const std::string family = drops.substr(0, colon), chain = drops.substr(blank + 1);
    const std::string table = drops.substr(colon + 1, blank - colon - 1);
    const Manager manager = ManagerOf(view, filter, drops);
    // iptables-nft manages these: what nft adds there, iptables-save would not know.
    if (family == "ip" && table == "filter" && chain == "INPUT") {
        return FixOf(manager, devices,
                     fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT", SubnetOf(devices)));
    }
    return FixOf(
        manager, devices,
        fmt::format("sudo nft insert rule {} {} {} ip saddr {} accept; keep it in {}", family,
                    ShellWord(table), ShellWord(chain), SubnetOf(devices), NftablesFile(view)));
}

std::string IptablesFix(HostView& view, const PacketFilter& filter,
                        const std::vector<NetDevice>& devices) {
    if (devices.empty()) return kOpenIt;
    return FixOf(ManagerOf(view, filter, ""), devices,
                 fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT", SubnetOf(devices)));
}

// In a snapshot made by hand the end of the rules may be missing.
bool IsCutRuleset(std::string_view nft) {
    return std::ranges::count(nft, '{') > std::ranges::count(nft, '}');
}

Reading IptablesReading(HostView& view) {
    Reading rules = view.Command("iptables -S");
    if (rules.state == ReadState::kAbsent) rules = view.Command("iptables -S INPUT");
    if (rules.state != ReadState::kAbsent || view.Complete()) return rules;
    for (const char* words :
         {"iptables-save", "iptables -L", "iptables -n -L", "iptables -nL", "iptables -v"}) {
        rules = CommandLike(view, words);
        if (rules.found()) break;
    }
    return rules;
}

void RunFirewall(HostView& view, Findings& out) {
    if (LookAtUfw(view, out)) return;
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") return LookAtZones(view, out);
    Reading nft = view.Command("nft list ruleset");
    nft.cut = nft.cut || IsCutRuleset(nft.text);
    const Reading iptables = IptablesReading(view);
    if (!nft.found() && !iptables.found()) {
        if (nft.refused() || iptables.refused()) {
            NotTold(
                "the firewall's rules can't be read: " + (nft.refused() ? nft.text : iptables.text),
                out);
        }
        return;
    }
    const std::vector<NetDevice> devices = FabricDevices(view);
    std::string drops;
    const PacketFilter nft_rules = ParseNft(nft.found() ? nft.text : "");
    const PacketFilter iptables_rules =
        ParseIptables(iptables.found() ? IptablesRules(iptables.text) : "");
    const Passage by_nft = BestPassage(nft_rules, devices, &drops);
    const Passage by_iptables = BestPassage(iptables_rules, devices);
    const std::string who = devices.empty() ? "no interface or network is accepted as a whole"
                                            : NamesOf(devices) + " is not accepted as a whole";
    if (by_nft == Passage::kDropped && !nft.cut) {
        return out.Warn("nftables: input is dropped by default, and " + who, kExpected, kWhy,
                        NftFix(view, nft_rules, drops, devices));
    }
    if (by_iptables == Passage::kDropped && !iptables.cut) {
        return out.Warn("iptables: input is dropped by default, and " + who, kExpected, kWhy,
                        IptablesFix(view, iptables_rules, devices));
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
    .reads = "ufw status verbose, firewall-cmd, nft list ruleset, iptables -S, iptables-save",
    .why = "A dropped connection shows as a time-out of seconds, never as an error.",
    .run = RunFirewall,
};

}  // namespace weft::doctor::checks
