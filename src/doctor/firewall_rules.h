// Firewalls as far as one question goes: does a rule drop input by default, and does any rule name
// the network of the fabric? Rules are not interpreted any further. Whether a port can be reached,
// `weft doctor --hosts` finds out by connecting to it (reach.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/network.h"

namespace weft::doctor {

struct FilterRule {
    std::string chain;  // "inet:filter input" of nft, "INPUT" of iptables
    std::string text;
    std::string target;   // "accept", "drop", "return", or the chain that it jumps to
    bool always = false;  // it asks nothing of the packet
};

struct FilterRules {
    std::vector<FilterRule> rules;
    std::vector<std::string> inputs;    // chains that see packets to this host
    std::vector<std::string> dropping;  // chains whose policy is to drop

    // The chain of packets to this host that drops by default; "" without one.
    std::string DropsByDefault() const;
    // Whether a rule accepts an interface of `devices`, a network that overlaps theirs, or many
    // ports. Without devices: any interface but lo, any network.
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
    // Whether it accepts all, many ports, or a network of `devices`.
    bool Opens(const std::vector<NetDevice>& devices) const;
};

// Zones of several outputs of firewall-cmd; a later one tells more of a zone of the same name.
std::vector<FirewallZone> ParseZones(const std::vector<std::string>& texts);

}  // namespace weft::doctor
