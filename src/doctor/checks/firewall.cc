// Checks firewalls between hosts.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/firewall_rules.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kWhy =
    "workers listen on the port of --listen, and data links on ports that the system chooses: a "
    "dropped connection shows as a time-out, not as an error";
constexpr const char* kExpected = "the fabric's interface or subnet accepted";
constexpr const char* kOpenIt =
    "accept all input of the fabric's interface ('ip -br addr' lists the interfaces)";

using Devices = std::vector<NetDevice>;

std::string NamesOf(const Devices& devices) {
    std::vector<std::string> names;
    for (const NetDevice& device : devices) names.push_back(device.name);
    return names.empty() ? "an interface" : Joined(names);
}

std::string SubnetOf(const Devices& devices) {
    if (devices.empty() || devices.front().addresses.empty()) return "";
    const Ipv4& own = devices.front().addresses.front();
    return fmt::format("{}/{}", Ipv4{own.network(), 32}.Text(), own.prefix);
}

std::string TrustInterface(const std::string& interface) {
    return fmt::format(
        "sudo firewall-cmd --permanent --zone=trusted --change-interface={} && sudo firewall-cmd "
        "--reload",
        ShellWord(interface));
}

void NoteUnread(const std::string& read, Findings& out) {
    out.Note(read, kExpected, kWhy, "sudo weft doctor --check firewall");
}

// A rule in the syntax of the program that wrote the ruleset, else `command`.
std::string FixOf(HostView& view, const FilterRules& rules, const Devices& devices,
                  const std::string& command) {
    if (devices.empty()) return kOpenIt;
    const std::string subnet = SubnetOf(devices);
    const auto any = [&](std::string_view part) {
        for (const std::string& input : rules.inputs) {
            if (Contains(input, part)) return true;
        }
        return std::ranges::any_of(rules.rules, [&](const FilterRule& rule) {
            return Contains(rule.chain, part) || Contains(rule.target, part);
        });
    };
    if (DistributionOf(view) == Distribution::kNixOs || any("nixos-fw")) {
        return Configure(fmt::format("networking.firewall.trustedInterfaces = [ {} ];",
                                     NixString(devices.front().name))) +
               fmt::format("; until then: sudo iptables -I INPUT -s {} -j ACCEPT", subnet);
    }
    if (any("ufw-")) return fmt::format("sudo ufw allow from {}", subnet);
    if (any(":firewalld ")) return TrustInterface(devices.front().name);
    if (any("PVEFW-") || any(":proxmox-firewall")) {
        return fmt::format(
            "pvesh create /cluster/firewall/rules --type in --action ACCEPT --source {} --enable 1",
            subnet);
    }
    return command;
}

std::string NftCommand(HostView& view, const std::string& chain, const Devices& devices) {
    const size_t colon = chain.find(':'), blank = chain.rfind(' ');
    if (colon == chain.npos || blank == chain.npos || blank < colon) return kOpenIt;
    return fmt::format("sudo nft insert rule {} {} {} ip saddr {} accept; keep it in {}",
                       chain.substr(0, colon),
                       ShellWord(chain.substr(colon + 1, blank - colon - 1)),
                       ShellWord(chain.substr(blank + 1)), SubnetOf(devices), NftablesFile(view));
}

void LookAtZones(HostView& view, const Devices& devices, Findings& out) {
    const Reading active = view.Command("firewall-cmd --get-active-zones");
    const Reading every = view.Command("firewall-cmd --list-all-zones");
    const Reading by_default = view.Command("firewall-cmd --list-all");
    const auto zones = ParseZones({active.text, every.text, by_default.text});
    // An active zone has interfaces or sources.
    const auto used = ParseZones({active.text});
    const bool cut =
        active.cut || every.cut || by_default.cut || (!used.empty() && used.back().lines.empty());
    const FirewallZone* closed = nullptr;
    const auto look = [&](const FirewallZone& zone, const std::string& interface) {
        closed = &zone;
        if (!zone.Opens(devices)) return false;
        out.Ok(
            fmt::format("firewalld: {} in the zone {}, which accepts ranks", interface, zone.name));
        return true;
    };
    for (const NetDevice& device : devices) {
        bool held = false;
        for (const FirewallZone& zone : zones) {
            if (!zone.Holds(device)) continue;
            held = true;
            if (look(zone, device.name)) return;
        }
        for (const FirewallZone& zone : zones) {
            if (!held && zone.is_default && look(zone, device.name)) return;
        }
    }
    for (const FirewallZone& zone : zones) {
        const bool in_use = std::ranges::any_of(zone.lines, [](const std::string& line) {
            return line.starts_with("interfaces: ") || line.starts_with("sources: ");
        });
        if (devices.empty() && (in_use || zone.is_default) && look(zone, "an interface")) return;
    }
    if (closed == nullptr || cut) {
        return NoteUnread("firewalld: running; its zones could not be read", out);
    }
    std::string interface = devices.empty() ? "" : devices.front().name;
    for (const std::string& line : closed->lines) {
        const auto words = Words(std::string_view(line));
        const bool told = interface.empty() && words.size() > 1 && words[0] == "interfaces:";
        if (told) interface = words.back();
    }
    out.Warn(fmt::format("firewalld: running, {} in the zone {}, which accepts no ranks",
                         interface.empty() ? "all interfaces" : interface, closed->name),
             kExpected, kWhy, interface.empty() ? kOpenIt : TrustInterface(interface));
}

bool LookAtUfw(HostView& view, const Devices& devices, Findings& out) {
    Reading status = view.Command("ufw status verbose");
    if (!status.found() && !view.Complete()) status = view.Command("ufw status");
    const FilterRules ufw = ParseUfw(status.text);
    if (ufw.DropsByDefault().empty()) return false;
    if (status.cut) {
        NoteUnread("ufw: active; the end of its rules is missing", out);
    } else if (ufw.NamesAny(devices)) {
        out.Ok(fmt::format("ufw: active, with a rule for {} or its network", NamesOf(devices)));
    } else {
        out.Warn(
            fmt::format("ufw: active, incoming denied by default, and no rule names {} or its "
                        "network",
                        NamesOf(devices)),
            kExpected, kWhy,
            devices.empty() ? kOpenIt : fmt::format("sudo ufw allow from {}", SubnetOf(devices)));
    }
    return true;
}

Reading IptablesReading(HostView& view) {
    Reading rules = view.Command("iptables -S");
    if (rules.state == ReadState::kAbsent) rules = view.Command("iptables -S INPUT");
    for (const char* words :
         {"iptables-save", "iptables -L", "iptables -n -L", "iptables -nL", "iptables -v"}) {
        if (rules.state == ReadState::kAbsent && !view.Complete()) rules = CommandLike(view, words);
    }
    return rules;
}

// The rules in a handmade snapshot may be incomplete.
bool IsCut(const Reading& reading) {
    return reading.cut ||
           std::ranges::count(reading.text, '{') > std::ranges::count(reading.text, '}');
}

void RunFirewall(HostView& view, Findings& out) {
    const Devices devices = FabricDevices(view);
    if (LookAtUfw(view, devices, out)) return;
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") {
        return LookAtZones(view, devices, out);
    }
    const Reading nft = view.Command("nft list ruleset"), iptables = IptablesReading(view);
    std::string named;
    for (const Reading* reading : {&nft, &iptables}) {
        if (!reading->found()) continue;
        const bool is_nft = reading == &nft;
        const char* program = is_nft ? "nftables" : "iptables";
        const FilterRules rules = is_nft ? ParseNft(reading->text) : ParseIptables(reading->text);
        const std::string chain = rules.DropsByDefault();
        if (chain.empty()) continue;
        const bool names = rules.NamesAny(devices);
        if (names || IsCut(*reading)) {
            named = fmt::format("{}: input is dropped by default; {}", program,
                                names ? "a rule names " + NamesOf(devices) + " or its network"
                                      : "the end of the rules is missing");
            continue;
        }
        const std::string command =
            is_nft && chain != "ip:filter INPUT"
                ? NftCommand(view, chain, devices)
                : fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT", SubnetOf(devices));
        return out.Warn(fmt::format("{}: input is dropped by default, and no rule names {} or its "
                                    "network",
                                    program, NamesOf(devices)),
                        kExpected, kWhy, FixOf(view, rules, devices, command));
    }
    if (!named.empty()) return out.Ok(named);
    if (nft.found() || iptables.found()) return out.Ok("no rule drops input by default");
    if (nft.refused() || iptables.refused()) {
        NoteUnread(
            "the firewall's rules can't be read: " + (nft.refused() ? nft.text : iptables.text),
            out);
    }
}

}  // namespace

const Check kFirewall = {
    .name = "firewall",
    .what = "Firewalls that drop input by default without a rule for the fabric's network.",
    .reads = "ufw status verbose, firewall-cmd, nft list ruleset, iptables -S, iptables-save",
    .why = "A dropped connection shows as a time-out of seconds, never as an error.",
    .run = RunFirewall,
};

}  // namespace weft::doctor::checks
