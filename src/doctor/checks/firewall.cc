// Firewalls that drop what ranks say to each other.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kWhy =
    "workers listen on the port of --listen, and data links on ports of the system's choice: what "
    "is dropped shows as time-outs, not as refusals";
constexpr const char* kExpected = "the fabric's interface or subnet accepted";

// Whether a chain of nftables that filters input drops by default and accepts no interface or
// network as a whole.
bool NftDrops(std::string_view rules) {
    bool inside = false, drops = false, opens = false;
    for (std::string_view line : Lines(rules)) {
        line = Trim(line);
        if (Contains(line, "hook input")) {
            inside = true;
            drops = drops || Contains(line, "policy drop");
        } else if (line == "}") {
            inside = false;
        } else if (inside && line.ends_with("accept")) {
            const bool loopback = Contains(line, "\"lo\"");
            opens = opens || (!loopback && (Contains(line, "iifname") || Contains(line, "iif ") ||
                                            Contains(line, "ip saddr")));
        } else if (inside && (line == "drop" || line.starts_with("reject") ||
                              (line.starts_with("counter packets") && line.ends_with(" drop")))) {
            drops = true;
        }
    }
    return drops && !opens;
}

bool IptablesDrops(std::string_view rules) {
    bool drops = false, opens = false;
    for (std::string_view line : Lines(rules)) {
        line = Trim(line);
        if (line == "-P INPUT DROP" || line.starts_with("-A INPUT -j REJECT") ||
            line.starts_with("-A INPUT -j DROP")) {
            drops = true;
        }
        if (!line.starts_with("-A INPUT ") || !line.ends_with("-j ACCEPT")) continue;
        opens = opens || (Contains(line, " -i ") && !Contains(line, " -i lo")) ||
                Contains(line, " -s ");
    }
    return drops && !opens;
}

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

void Run(HostView& view, Findings& out) {
    const Reading ufw = view.Command("ufw status verbose");
    if (Contains(ufw.text, "Status: active") && !Contains(ufw.text, "allow (incoming)")) {
        const bool open = UfwOpens(ufw.text);
        if (!open) {
            return out.Warn("ufw: active, incoming denied by default", kExpected, kWhy,
                            "sudo ufw allow from 10.0.0.0/24 (the fabric's subnet)");
        }
        return out.Ok("ufw: active, with rules that open a network");
    }
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") {
        const Reading zones = view.Command("firewall-cmd --get-active-zones");
        if (Contains(zones.text, "trusted")) {
            return out.Ok("firewalld: an interface in the zone trusted");
        }
        return out.Warn("firewalld: running, no interface in the zone trusted", kExpected, kWhy,
                        "sudo firewall-cmd --permanent --zone=trusted --change-interface=INTERFACE "
                        "&& sudo firewall-cmd --reload");
    }
    const Reading nft = view.Command("nft list ruleset");
    const Reading iptables = view.Command("iptables -S INPUT");
    if (nft.found() && NftDrops(nft.text)) {
        return out.Warn(
            "nftables: input is dropped by default, and no interface or network is "
            "accepted as a whole",
            kExpected, kWhy,
            "sudo nft insert rule inet filter input ip saddr 10.0.0.0/24 accept (the "
            "fabric's subnet; keep it in /etc/nftables.conf)");
    }
    if (iptables.found() && IptablesDrops(iptables.text)) {
        return out.Warn(
            "iptables: input is dropped by default, and no interface or network is "
            "accepted as a whole",
            kExpected, kWhy,
            "sudo iptables -I INPUT -s 10.0.0.0/24 -j ACCEPT (the fabric's subnet)");
    }
    if (nft.found() || iptables.found()) return out.Ok("no rule that drops input as a whole");
    if (nft.refused() || iptables.refused()) {
        out.Note(
            "the firewall's rules can't be read: " + (nft.refused() ? nft.text : iptables.text),
            kExpected, kWhy, "sudo weft doctor --check firewall");
    }
}

}  // namespace

const Check kFirewall = {
    .name = "firewall",
    .what = "Firewalls that would drop ranks' connections.",
    .reads = "ufw status verbose, firewall-cmd, nft list ruleset, iptables -S INPUT",
    .why = "A dropped connection shows as a time-out of seconds, never as an error.",
    .run = Run,
};

}  // namespace weft::doctor::checks
