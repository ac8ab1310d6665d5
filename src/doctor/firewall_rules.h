// Reads firewall rules to answer one question: does a chain drop input by default, and does a rule
// name the fabric's network? Rules are not interpreted further. `weft doctor --hosts` tests whether
// a port can be reached by connecting to it (reach.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/network.h"

namespace weft::doctor {

struct FilterRule {
    std::string chain;  // "inet:filter input" of nft, "INPUT" of iptables
    std::string text;
    std::string target;   // "accept", "drop", "return", or a chain to jump to
    bool always = false;  // without a condition
};

struct FilterRules {
    std::vector<FilterRule> rules;
    std::vector<std::string> inputs;    // chains that see packets to this host
    std::vector<std::string> dropping;  // chains whose policy is to drop

    // The input chain that drops by default; "": none.
    std::string DropsByDefault() const;
    // A rule accepts an interface of `devices`, a network that overlaps theirs, or many ports.
    // Empty `devices`: any interface but lo, any network.
    bool NamesAny(const std::vector<NetDevice>& devices) const;
};

FilterRules ParseNft(std::string_view ruleset);    // nft list ruleset
FilterRules ParseIptables(std::string_view text);  // iptables -S, iptables-save, iptables -L
FilterRules ParseUfw(std::string_view status);     // ufw status verbose; no inputs: not active

struct FirewallZone {
    std::string name;
    bool is_default = false;
    std::vector<std::string> lines;  // "target: default", "ports: 1025-65535/tcp"

    bool Holds(const NetDevice& device) const;  // by the interface's name or its network
    // Accepts all, many ports, or a network of `devices`.
    bool Opens(const std::vector<NetDevice>& devices) const;
};

// Zones from several outputs of firewall-cmd; a later one adds to a zone of the same name.
std::vector<FirewallZone> ParseZones(const std::vector<std::string>& texts);

}  // namespace weft::doctor
