// Reads firewall rules to answer two questions: does a chain drop input by default, and does a rule
// accept the interfaces or networks that ranks use? Rules are not interpreted further. `weft doctor
// --hosts` also connects to ports to test whether they can be reached (reach.h).
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
    bool always = false;  // the rule has no condition
};

struct FilterRules {
    std::vector<FilterRule> rules;
    std::vector<std::string> inputs;    // chains through which packets to this host pass
    std::vector<std::string> dropping;  // chains whose policy is to drop

    // Name of an input chain that drops packets by default; "": none.
    std::string DropsByDefault() const;
    // Whether a rule of the input chains accepts an interface of `devices`, a network that overlaps
    // one of theirs, or many ports. If `devices` is empty, any interface except lo and any network
    // count.
    bool NamesAny(const std::vector<NetDevice>& devices) const;
};

FilterRules ParseNft(std::string_view ruleset);    // nft list ruleset
FilterRules ParseIptables(std::string_view text);  // iptables -S, iptables-save, iptables -L
FilterRules ParseUfw(std::string_view status);     // ufw status verbose; inactive: no inputs

struct FirewallZone {
    std::string name;
    bool is_default = false;
    std::vector<std::string> lines;  // "target: default", "ports: 1025-65535/tcp"

    bool Holds(const NetDevice& device) const;  // whether the zone applies to the interface
    // Whether the zone accepts everything, many ports, or a network of `devices`.
    bool Opens(const std::vector<NetDevice>& devices) const;
};

// Parses several outputs of firewall-cmd. Lines of zones with the same name are joined.
std::vector<FirewallZone> ParseZones(const std::vector<std::string>& texts);

}  // namespace weft::doctor
