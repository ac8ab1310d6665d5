// Rules of nftables and iptables as far as they decide about a connection that a peer opens to a
// high TCP port of this host: what `nft list ruleset` and `iptables -S` print, in one form.
//
// Chains that are jumped to are followed, sets that are listed are read. What a rule asks that is
// not known here (a mark, a rate, a set of the kernel's) makes its verdict uncertain, never wrong.
// The rules can be written again, by themselves: reading what was written gives the same rules.
// Comments, names of tables, counters, and rules of other protocols are not among them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/names.h"
#include "doctor/network.h"

namespace weft::doctor {

struct FilterRule {
    enum class Verdict { kNone, kAccept, kDrop, kJump, kGoto, kReturn };
    struct Ports {
        int64_t first = 0, last = 0;
    };
    std::vector<std::string> interfaces;  // empty: any; "eth*" is a prefix
    bool other_interfaces = false;        // all but those
    std::vector<Ipv4> sources;            // empty: any
    bool other_sources = false;           // all but those
    std::vector<Ports> ports;             // empty: any
    bool other_ports = false;             // all but those
    bool uncertain = false;               // it asks something else, too
    Verdict verdict = Verdict::kNone;
    std::string target;  // of a jump
};

struct FilterChain {
    bool is_input = false;  // where packets to this host come in
    bool drops = false;     // its policy
    std::vector<FilterRule> rules;
};

// "80" or "1024:65535" (dash ':'); none where it is something else.
std::optional<FilterRule::Ports> ParsePorts(std::string_view text, char dash);
std::string PortsText(const std::vector<FilterRule::Ports>& ports, char dash);  // "22,80-90"

// By "TABLE CHAIN"; of iptables by "CHAIN".
using PacketFilter = std::map<std::string, FilterChain>;

PacketFilter ParseNft(std::string_view ruleset);
PacketFilter ParseIptables(std::string_view rules);
// Only the chains that packets to this host reach.
std::string WriteNft(const PacketFilter& filter, Names& names);
std::string WriteIptables(const PacketFilter& filter, Names& names);

enum class Passage { kAccepted, kDropped, kUncertain };
// device: where the connection comes in, from its subnet; null: by an interface that isn't known,
// and then a rule that accepts any interface but lo, or any subnet, is taken for its own. A rule
// about a part of the subnet counts where it accepts, for that may be all ranks; it bars nobody.
// drops: set to the name of the chain of packets to this host that drops it.
Passage PassageBy(const PacketFilter& filter, const NetDevice* device,
                  std::string* drops = nullptr);

}  // namespace weft::doctor
