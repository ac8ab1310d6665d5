// Checks firewalls between hosts.
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/firewall_rules.h"

namespace weft::doctor::checks {
namespace {

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
    if (DistributionOf(view) == "nixos" || any("nixos-fw")) {
        const std::string trusted = fmt::format("networking.firewall.trustedInterfaces = [ {} ];",
                                                NixString(devices.front().name));
        return Cure(view, "configure", {{"value", trusted}}) +
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
    return fmt::format(
        "sudo nft insert rule {} {} {} ip saddr {} accept; keep it in {}", chain.substr(0, colon),
        ShellWord(chain.substr(colon + 1, blank - colon - 1)), ShellWord(chain.substr(blank + 1)),
        SubnetOf(devices), Cure(view, "nftables-file"));
}

void CheckZones(HostView& view, const Devices& devices, Findings& out) {
    const Reading active = view.Command("firewall-cmd --get-active-zones");
    const Reading every = view.Command("firewall-cmd --list-all-zones");
    const Reading by_default = view.Command("firewall-cmd --list-all");
    const auto zones = ParseZones({active.text, every.text, by_default.text});
    // An active zone has interfaces or sources.
    const auto used = ParseZones({active.text});
    const bool cut =
        active.cut || every.cut || by_default.cut || (!used.empty() && used.back().lines.empty());
    const FirewallZone* closed = nullptr;
    const auto is_open = [&](const FirewallZone& zone, const std::string& interface) {
        closed = &zone;
        if (!zone.Opens(devices)) return false;
        ReportOk(out, "firewalld: {} in the zone {}, which accepts ranks", interface, zone.name);
        return true;
    };
    for (const NetDevice& device : devices) {
        bool held = false;
        for (const FirewallZone& zone : zones) {
            if (!zone.Holds(device)) continue;
            held = true;
            if (is_open(zone, device.name)) return;
        }
        for (const FirewallZone& zone : zones) {
            if (!held && zone.is_default && is_open(zone, device.name)) return;
        }
    }
    for (const FirewallZone& zone : zones) {
        const bool in_use = std::ranges::any_of(zone.lines, [](const std::string& line) {
            return line.starts_with("interfaces: ") || line.starts_with("sources: ");
        });
        if (devices.empty() && (in_use || zone.is_default) && is_open(zone, "an interface")) return;
    }
    if (closed == nullptr || cut) {
        return Report<found::kFirewallUnread>(view, out,
                                              "firewalld: running; its zones could not be read");
    }
    std::string interface = devices.empty() ? "" : devices.front().name;
    for (const std::string& line : closed->lines) {
        const auto words = Words(std::string_view(line));
        const bool named = interface.empty() && words.size() > 1 && words[0] == "interfaces:";
        if (named) interface = words.back();
    }
    Report<found::kZoneClosed>(view, out, interface.empty() ? "all interfaces" : interface,
                               closed->name,
                               interface.empty() ? kOpenIt : TrustInterface(interface));
}

bool CheckUfw(HostView& view, const Devices& devices, Findings& out) {
    Reading status = view.Command("ufw status verbose");
    if (!status.found() && !view.Complete()) status = view.Command("ufw status");
    const FilterRules ufw = ParseUfw(status.text);
    if (ufw.DropsByDefault().empty()) return false;
    if (status.cut) {
        Report<found::kFirewallUnread>(view, out, "ufw: active; the end of its rules is missing");
    } else if (ufw.NamesAny(devices)) {
        ReportOk(out, "ufw: active, with a rule for {} or its network", NamesOf(devices));
    } else {
        Report<found::kUfwClosed>(
            view, out, NamesOf(devices),
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

}  // namespace

void RunFirewall(HostView& view, Findings& out) {
    const Devices devices = FabricDevices(view);
    if (CheckUfw(view, devices, out)) return;
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") {
        return CheckZones(view, devices, out);
    }
    const Reading nft = view.Command("nft list ruleset"), iptables = IptablesReading(view);
    std::string open;
    for (const Reading* reading : {&nft, &iptables}) {
        const bool is_nft = reading == &nft;
        const char* program = is_nft ? "nftables" : "iptables";
        const FilterRules rules = is_nft ? ParseNft(reading->text) : ParseIptables(reading->text);
        const std::string chain = reading->found() ? rules.DropsByDefault() : "";
        if (chain.empty()) continue;
        const bool named = rules.NamesAny(devices);
        if (named || IsCut(*reading)) {
            open = fmt::format("{}: input is dropped by default; {}", program,
                               named ? "a rule names " + NamesOf(devices) + " or its network"
                                     : "the end of the rules is missing");
            continue;
        }
        const std::string command =
            is_nft && chain != "ip:filter INPUT"
                ? NftCommand(view, chain, devices)
                : fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT", SubnetOf(devices));
        return Report<found::kFilterClosed>(view, out, program, NamesOf(devices),
                                            FixOf(view, rules, devices, command));
    }
    if (!open.empty()) return out.Ok(open);
    if (nft.found() || iptables.found()) return out.Ok("no rule drops input by default");
    if (nft.refused() || iptables.refused()) {
        Report<found::kFirewallUnread>(view, out,
                                       "the firewall's rules could not be read: " +
                                           (nft.refused() ? nft.text : iptables.text));
    }
}

}  // namespace weft::doctor::checks
