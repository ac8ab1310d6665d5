// Checks firewalls between hosts. Two questions are asked of the rules: does a chain drop input by
// default, and does a rule accept the interfaces or networks that ranks use? Rules are not
// interpreted further. `weft doctor --hosts` also connects to ports to test whether they can be
// reached (reach.h).
#include "doctor/checks/checks.h"
#include "doctor/pseudonyms.h"

namespace weft::doctor::checks {
namespace {

constexpr size_t kMostRules = 20'000;
constexpr int kMostDepth = 16;
constexpr int64_t kManyPorts = 1000;
constexpr const char* kOpenIt =
    "accept input from the fabric's private subnet ('ip -br addr' lists the addresses)";
constexpr const char* kOpenHosts =
    "the addresses here are public, so accept the other hosts' addresses only, never their "
    "network; or join the hosts by a private network (a VLAN, WireGuard), and accept that one";

constexpr const char* kSets = "sets";  // a chain with the elements of nft's sets

using Devices = std::vector<NetDevice>;

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
};

// Words of a rule, separated by blanks, quotes and brackets.
std::vector<std::string> WordsOfRule(std::string_view rule) {
    std::string plain(rule);
    for (char& c : plain) {
        if (Contains("\"'{},;=()", std::string_view(&c, 1))) c = ' ';
    }
    std::vector<std::string> words;
    for (std::string_view word : Words(plain)) words.emplace_back(word);
    return words;
}

// "10.0.0.0/24", "10.0.0.1", "10.0.0.1-10.0.0.9"
bool NamesNetwork(std::string_view word, const Devices& devices) {
    const size_t dash = word.find('-');
    const auto first = ParseIpv4(word.substr(0, dash));
    const auto last = dash == word.npos ? first : ParseIpv4(word.substr(dash + 1));
    if (!first || !last || first->IsLoopback() || first->prefix == 0) return false;
    if (devices.empty()) return first->prefix < 32;
    for (const NetDevice& device : devices) {
        for (const Ipv4& own : device.addresses) {
            const bool inside = first->bits <= own.bits && own.bits <= last->bits;
            if (inside || first->Overlaps(own) || last->Overlaps(own)) return true;
        }
    }
    return false;
}

// "enp1s0f0np0", or "enp*" and "enp+".
bool NamesInterface(std::string_view word, const Devices& devices) {
    const bool prefix = word.size() > 1 && (word.ends_with('*') || word.ends_with('+'));
    if (prefix) word.remove_suffix(1);
    return std::ranges::any_of(devices, [&](const NetDevice& device) {
        return prefix ? device.name.starts_with(word) : device.name == word;
    });
}

// "1024:65535", "1025-65535/tcp"
bool AreManyPorts(std::string_view word) {
    word = word.substr(0, word.find('/'));
    const size_t joint = word.find_first_of("-:");
    if (joint == word.npos) return false;
    const auto first = Integer(word.substr(0, joint)), last = Integer(word.substr(joint + 1));
    return first && last && *last - *first >= kManyPorts;
}

// Whether the rule may accept all traffic of ranks over the devices.
bool NamesFabric(std::string_view rule, const Devices& devices) {
    const auto words = WordsOfRule(rule);
    const auto is = [&](auto&& test) {
        return std::ranges::any_of(words,
                                   [&](const std::string& word) { return test(word, devices); });
    };
    const bool ports = std::ranges::any_of(words, AreManyPorts);
    if (ports && !Contains(rule, "udp")) return true;
    if (!ports && ContainsAny(rule, "dport|dpt:|/tcp")) return false;
    if (ContainsAny(rule, "udp|icmp|ip6 |(v6)")) return false;
    // The content of a kernel set is unknown.
    if (Contains(rule, "match-set") || is(NamesNetwork) || is(NamesInterface)) return true;
    if (!devices.empty()) return false;
    bool asks = false;  // the rule has an interface condition; names follow
    for (const std::string& word : words) {
        const bool name = !IsOneOf(word, "lo != !");
        if (asks && name && !IsUsualDeviceName(word) && !word.starts_with('@')) asks = false;
        if (asks && name) return true;
        asks = asks || IsOneOf(word, "-i iifname iif on");
    }
    return false;
}

std::string VerdictOf(std::string_view word) {
    const std::string target = LowerCase(word);
    if (!IsOneOf(target, "accept drop reject return")) return std::string(word);
    return target == "reject" ? "drop" : target;
}

// "counter packets 0 bytes 0 jump fabric", "reject with icmpx admin-prohibited", "accept"
FilterRule NftRule(const std::string& table, const std::string& chain, std::string_view text) {
    FilterRule rule{table + " " + chain, std::string(text), "", true};
    const auto words = WordsOfRule(text);
    bool logs = false;  // options of `log` follow
    for (size_t i = 0; i < words.size() && rule.target.empty(); ++i) {
        const std::string& word = words[i];
        if (IsOneOf(word, "counter packets bytes")) continue;
        logs = logs || word == "log";
        if (IsOneOf(word, "jump goto")) {
            rule.target = i + 1 < words.size() ? table + " " + words[i + 1] : "";
        } else if (IsOneOf(word, "accept drop reject return")) {
            rule.target = VerdictOf(word);
        } else if (!logs && (i == 0 || !Integer(word))) {
            rule.always = false;
        }
    }
    return rule;
}

// A line of `iptables -L`, "ACCEPT all -- anywhere anywhere". With -v, two counts precede it.
void AddListed(std::string_view line, const std::string& chain, FilterRules& all) {
    auto words = WordsOfRule(line);
    while (!words.empty() && LeadingNumber(words[0])) words.erase(words.begin());
    if (words.size() < 5 || words[0] == "target" || words[0] == "pkts") return;
    const bool verbose = words.size() > 6 && words[3] != "anywhere" && !ParseIpv4(words[3]);
    const std::vector<std::string> asked(words.begin() + (verbose ? 3 : 2), words.end());
    const bool plain = std::ranges::all_of(asked, [](const std::string& word) {
        return IsOneOf(word, "-- * any anywhere 0.0.0.0/0") ||
               BeginsWithOneOf(word, "reject-with icmp-");
    });
    all.rules.push_back({chain, std::string(line), VerdictOf(words[0]),
                         plain && (words[1] == "all" || words[1] == "0")});
}

// "-A INPUT -i eth0 -j ACCEPT"
void AddAppended(std::string_view line, FilterRules& all) {
    const auto words = WordsOfRule(line);
    if (words.size() < 2) return;
    FilterRule rule{words[1], std::string(line), "", true};
    for (size_t i = 2; i + 1 < words.size() && rule.target.empty(); ++i) {
        if (words[i] == "-j" || words[i] == "-g") rule.target = VerdictOf(words[i + 1]);
        rule.always = i == 2 && !rule.target.empty();
    }
    if (!rule.target.empty()) all.rules.push_back(std::move(rule));
}

bool DropsIn(const FilterRules& all, const std::string& chain, int depth) {
    if (depth > kMostDepth) return false;
    for (const FilterRule& rule : all.rules) {
        if (rule.chain != chain || !rule.always) continue;
        if (rule.target == "accept") return false;
        if (rule.target == "drop" || DropsIn(all, rule.target, depth + 1)) return true;
    }
    return std::ranges::find(all.dropping, chain) != all.dropping.end();
}

// Names of the input chains that drop packets by default. A packet must pass all of them.
std::vector<std::string> DropByDefault(const FilterRules& all) {
    std::vector<std::string> dropping;
    for (const std::string& input : all.inputs) {
        if (DropsIn(all, input, 0)) dropping.push_back(input);
    }
    return dropping;
}

// Whether a rule of the chain, or of chains that it reaches, accepts an interface of `devices`, a
// network that overlaps one of theirs, or many ports. If `devices` is empty, any interface except
// lo and any network count.
bool NamesAny(const FilterRules& all, const std::string& chain, const Devices& devices) {
    std::set<std::string> reached = {chain, kSets};
    for (int depth = 0; depth < kMostDepth; ++depth) {
        for (const FilterRule& rule : all.rules) {
            if (reached.contains(rule.chain)) reached.insert(rule.target);
        }
    }
    return std::ranges::any_of(all.rules, [&](const FilterRule& rule) {
        return rule.target != "drop" && reached.contains(rule.chain) &&
               NamesFabric(rule.text, devices);
    });
}

// The devices that no rule of the chain names.
Devices Unnamed(const FilterRules& all, const std::string& chain, const Devices& devices) {
    Devices unnamed;
    for (const NetDevice& device : devices) {
        if (!NamesAny(all, chain, {device})) unnamed.push_back(device);
    }
    return unnamed;
}

// A fault if ranks reach no device; else they may use the other ones.
Severity SeverityOf(const Devices& closed, const Devices& devices) {
    return closed.size() < devices.size() ? kNote : kWarn;
}

FilterRules ParseNft(std::string_view ruleset) {
    FilterRules all;
    std::string table, chain;
    for (std::string_view line : Lines(ruleset)) {
        line = Trim(line);
        const auto words = Words(line);
        if (words.empty() || all.rules.size() >= kMostRules) continue;
        if (words[0] == "table" && words.size() > 2) {
            table = fmt::format("{}:{}", words[1], words[2]);
        } else if (words[0] == "chain" && words.size() > 1) {
            chain = words[1];
        } else if (words[0] == "set" || words[0] == "map") {
            chain = "";
        } else if (Contains(line, "hook input")) {
            if (table.starts_with("ip6:")) continue;  // it gets no IPv4 packets
            all.inputs.push_back(table + " " + chain);
            if (Contains(line, "policy drop")) all.dropping.push_back(all.inputs.back());
        } else if (!chain.empty() && words[0] != "}") {
            all.rules.push_back(NftRule(table, chain, line));
        } else if (words[0] != "}") {  // any rule may accept the elements of a set
            all.rules.push_back({kSets, std::string(line), "set"});
        }
    }
    return all;
}

// Output of iptables -S, iptables-save or iptables -L.
FilterRules ParseIptables(std::string_view text) {
    FilterRules all;
    all.inputs = {"INPUT"};
    std::string chain;
    bool filter = true;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        const auto words = Words(line);
        if (words.empty() || all.rules.size() >= kMostRules) continue;
        if (line.starts_with('*')) filter = line == "*filter";
        if (!filter) continue;
        if (words[0] == "-P" && words.size() > 2 && words[2] != "ACCEPT") {
            all.dropping.emplace_back(words[1]);
        } else if (line.starts_with(':') && words.size() > 1 && words[1] == "DROP") {
            all.dropping.emplace_back(words[0].substr(1));
        } else if (words[0] == "Chain" && words.size() > 1) {
            chain = words[1];
            if (Contains(line, "(policy DROP")) all.dropping.push_back(chain);
        } else if (words[0] == "-A") {
            AddAppended(line, all);
        } else if (!chain.empty()) {
            AddListed(line, chain, all);
        }
    }
    return all;
}

// Output of `ufw status verbose`; inactive: no inputs.
FilterRules ParseUfw(std::string_view status) {
    FilterRules all;
    const std::string_view state = After(status, "Status:");
    if (!IsOneOf(state, "active Aktiv aktiv")) return all;
    all.inputs = {"ufw"};
    if (!Contains(status, "allow (incoming)")) all.dropping = {"ufw"};
    for (std::string_view line : Lines(status)) {
        line = line.substr(0, line.find(" #"));
        const size_t allow = line.find(" ALLOW ");
        if (allow == line.npos || ContainsAny(line, " ALLOW OUT| ALLOW FWD")) continue;
        const bool all_of_it =
            Trim(line.substr(0, allow)) == "Anywhere" && Trim(line).ends_with(" Anywhere");
        all.rules.push_back({"ufw", std::string(line), "accept", all_of_it});
    }
    return all;
}

struct FirewallZone {
    std::string name;
    bool is_default = false;
    std::vector<std::string> lines;  // "target: default", "ports: 1025-65535/tcp"

    // Whether the zone applies to the interface.
    bool Holds(const NetDevice& device) const {
        for (const std::string& line : lines) {
            if (!BeginsWithOneOf(line, "interfaces: sources:")) continue;
            for (std::string_view word : Words(line)) {
                if (word == device.name || NamesNetwork(word, {device})) return true;
                if (word.starts_with("ipset:")) return true;
            }
        }
        return false;
    }
    // Whether the zone accepts everything, many ports, or a network of `devices`.
    bool Opens(const Devices& devices) const {
        const bool described = std::ranges::any_of(
            lines, [](const std::string& line) { return line.starts_with("target:"); });
        if (!described && IsOneOf(name, "trusted FedoraWorkstation")) return true;
        return std::ranges::any_of(lines, [&](const std::string& line) {
            if (line.starts_with("target: ACCEPT")) return true;
            if (line.starts_with("protocols:") && Contains(line, "tcp")) return true;
            if (line.starts_with("ports:")) {
                return std::ranges::any_of(Words(line), [](std::string_view word) {
                    return word.ends_with("/tcp") && AreManyPorts(word);
                });
            }
            return line.starts_with("rule ") && line.ends_with("accept") &&
                   NamesFabric(line, devices);
        });
    }
};

// Parses several outputs of firewall-cmd. Lines of zones with the same name are joined.
std::vector<FirewallZone> ParseZones(const std::vector<std::string>& texts) {
    std::vector<FirewallZone> zones;
    for (const std::string& text : texts) {
        size_t current = 0;
        for (std::string_view line : Lines(text)) {
            const auto words = Words(line);
            if (words.empty() || zones.size() > 256) continue;
            if (line[0] != ' ' && line[0] != '\t') {
                const auto known = std::ranges::find(zones, words[0], &FirewallZone::name);
                current = static_cast<size_t>(known - zones.begin());
                if (known == zones.end()) zones.push_back({std::string(words[0]), false, {}});
                zones[current].is_default |= Contains(line, "default");
            } else if (current < zones.size()) {
                zones[current].lines.emplace_back(Trim(line));
            }
        }
    }
    return zones;
}

std::string NamesOf(const Devices& devices) {
    std::vector<std::string> names;
    for (const NetDevice& device : devices) names.push_back(device.name);
    return names.empty() ? "an interface" : Joined(names);
}

// The private subnets of the devices, separated by `joint`; "": there are none.
std::string SubnetsOf(const Devices& devices, const char* joint) {
    std::vector<std::string> subnets;
    for (const NetDevice& device : devices) {
        for (const Ipv4& own : device.addresses) {
            if (!own.InPrivateNetwork() || own.prefix == 32) continue;
            subnets.push_back(Ipv4{own.network(), own.prefix}.PrefixText());
            if (IsIn(std::span(subnets).first(subnets.size() - 1), subnets.back())) {
                subnets.pop_back();
            }
        }
    }
    return fmt::format("{}", fmt::join(subnets, joint));
}

// The devices with the addresses by which ranks should talk: the private ones, if there are any. A
// host on the Internet often has a private network of the cluster's beside its public address.
Devices PrivateOf(const Devices& devices) {
    Devices kept;
    for (NetDevice device : devices) {
        std::erase_if(device.addresses, [](const Ipv4& own) { return !own.InPrivateNetwork(); });
        if (!device.addresses.empty()) kept.push_back(std::move(device));
    }
    return kept.empty() ? devices : kept;
}

// The fix where no private subnet is known. Without devices, all subnets of the host count.
std::string WithoutSubnets(HostView& view, const Devices& devices) {
    bool any = false, any_private = false;
    for (const NetDevice& device : devices.empty() ? NetDevices(view) : devices) {
        if (device.name == "lo" || IsOfContainers(device.name) || IsVpn(device.name)) continue;
        for (const Ipv4& own : device.addresses) {
            any = true;
            any_private = any_private || own.InPrivateNetwork();
        }
    }
    return any && !any_private ? kOpenHosts : kOpenIt;
}

std::string TrustSubnets(const Devices& devices) {
    return fmt::format(
        "sudo firewall-cmd --permanent --zone=trusted --add-source={} && sudo firewall-cmd "
        "--reload",
        SubnetsOf(devices, " --add-source="));
}

std::string AllowInUfw(const Devices& devices) {
    return "sudo ufw allow from " + SubnetsOf(devices, " && sudo ufw allow from ");
}

std::string NftRuleOf(const Devices& devices) {
    const std::string subnets = SubnetsOf(devices, ", ");
    const bool several = Contains(subnets, ",");
    return several ? fmt::format("ip saddr '{{ {} }}' accept", subnets)
                   : fmt::format("ip saddr {} accept", subnets);
}

// nft: the host's firewall uses nftables.
std::string AllowInNixos(HostView& view, bool nft, const Devices& devices) {
    const std::string subnets = SubnetsOf(devices, nft ? ", " : ",");
    const std::string rule =
        nft ? fmt::format("extraInputRules = \"ip saddr {{ {} }} accept\";", subnets)
            : fmt::format("extraCommands = \"iptables -A nixos-fw -s {} -j nixos-fw-accept\";",
                          subnets);
    const std::string now =
        nft ? fmt::format("nft insert rule inet nixos-fw input {}", NftRuleOf(devices))
            : fmt::format("iptables -I INPUT -s {} -j ACCEPT", subnets);
    return fmt::format("{}; until then: sudo {}",
                       Cure(view, "configure", {{"value", "networking.firewall." + rule}}), now);
}

// A rule in the syntax of the program that wrote the ruleset, else `command`. It opens the private
// subnets of the devices, and never a public one.
std::string FixOf(HostView& view, const FilterRules& rules, const Devices& devices,
                  const std::string& command) {
    const std::string subnets = SubnetsOf(devices, ",");
    if (subnets.empty()) return WithoutSubnets(view, devices);
    const auto any = [&](std::string_view parts) {
        return std::ranges::any_of(rules.inputs,
                                   [&](const auto& input) { return ContainsAny(input, parts); }) ||
               std::ranges::any_of(rules.rules, [&](const FilterRule& rule) {
                   return ContainsAny(rule.chain, parts) || ContainsAny(rule.target, parts);
               });
    };
    if (DistributionOf(view) == "nixos" || any("nixos-fw")) {
        return AllowInNixos(view, any(":nixos-fw "), devices);
    }
    if (any("ufw-")) return AllowInUfw(devices);
    if (any(":firewalld ")) return TrustSubnets(devices);
    if (any("PVEFW-|:proxmox-firewall")) {
        return fmt::format(
            "pvesh create /cluster/firewall/rules --type in --action ACCEPT --source {} --enable 1",
            subnets);
    }
    return command;
}

std::string NftCommand(HostView& view, const std::string& chain, const Devices& devices) {
    const size_t colon = chain.find(':'), blank = chain.rfind(' ');
    if (colon == chain.npos || blank == chain.npos || blank < colon) return kOpenIt;
    return fmt::format("sudo nft insert rule {} {} {} {}; keep it in {}", chain.substr(0, colon),
                       ShellWord(chain.substr(colon + 1, blank - colon - 1)),
                       ShellWord(chain.substr(blank + 1)), NftRuleOf(devices),
                       Cure(view, "nftables-file"));
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
    const auto is_open = [&](const FirewallZone& zone, const std::string& interface,
                             const Devices& own) {
        if (!zone.Opens(own)) {
            closed = &zone;
            return false;
        }
        ReportOk(out, "firewalld: {} in the zone {}, which accepts ranks", interface, zone.name);
        return true;
    };
    Devices shut;
    for (const NetDevice& device : devices) {
        const bool held = std::ranges::any_of(
            zones, [&](const FirewallZone& zone) { return zone.Holds(device); });
        const bool open = std::ranges::any_of(zones, [&](const FirewallZone& zone) {
            return (held ? zone.Holds(device) : zone.is_default) &&
                   is_open(zone, device.name, {device});
        });
        if (!open) shut.push_back(device);
    }
    if (shut.empty() && !devices.empty()) return;
    for (const FirewallZone& zone : zones) {
        const bool in_use = std::ranges::any_of(zone.lines, [](const std::string& line) {
            return BeginsWithOneOf(line, "interfaces: sources:") && Words(line).size() > 1;
        });
        if (devices.empty() && (in_use || zone.is_default) && is_open(zone, "an interface", {}))
            return;
    }
    if (closed == nullptr || cut) {
        return Report<found::kFirewallUnread>(out,
                                              "firewalld: running; its zones could not be read");
    }
    std::string interface = shut.empty() ? "" : NamesOf(shut);
    for (const std::string& line : closed->lines) {
        const auto words = Words(line);
        const bool named = interface.empty() && words.size() > 1 && words[0] == "interfaces:";
        if (named) interface = words.back();
    }
    ReportAs<found::kZoneClosed>(
        shut.empty() ? kWarn : SeverityOf(shut, devices), out,
        interface.empty() ? "all interfaces" : interface, closed->name,
        SubnetsOf(shut, ",").empty() ? WithoutSubnets(view, shut) : TrustSubnets(shut));
}

bool CheckUfw(HostView& view, const Devices& devices, Findings& out) {
    Reading status = view.Command("ufw status verbose");
    if (!status.found() && !view.Complete()) status = view.Command("ufw status");
    const FilterRules ufw = ParseUfw(status.text);
    if (DropByDefault(ufw).empty()) return false;
    const Devices closed = Unnamed(ufw, "ufw", devices);
    const bool named = devices.empty() ? NamesAny(ufw, "ufw", {}) : closed.empty();
    if (status.cut) {
        Report<found::kFirewallUnread>(out, "ufw: active; the end of its rules is missing");
    } else if (named) {
        ReportOk(out, "ufw: active, with a rule for {} or its network", NamesOf(devices));
    } else {
        ReportAs<found::kUfwClosed>(
            devices.empty() ? kWarn : SeverityOf(closed, devices), out, NamesOf(closed),
            SubnetsOf(closed, ",").empty() ? WithoutSubnets(view, closed) : AllowInUfw(closed));
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
    const Devices devices = PrivateOf(FabricDevices(view));
    if (CheckUfw(view, devices, out)) return;
    const Reading firewalld = view.Command("firewall-cmd --state");
    if (firewalld.found() && Trim(firewalld.text) == "running") {
        return CheckZones(view, devices, out);
    }
    const Reading nft = view.Command("nft list ruleset"), iptables = IptablesReading(view);
    std::string open;
    for (const Reading* reading : {&nft, &iptables}) {
        if (!reading->found()) continue;
        const bool is_nft = reading == &nft;
        const char* program = is_nft ? "nftables" : "iptables";
        const FilterRules rules = is_nft ? ParseNft(reading->text) : ParseIptables(reading->text);
        for (const std::string& chain : DropByDefault(rules)) {
            const Devices closed = Unnamed(rules, chain, devices);
            const bool named = devices.empty() ? NamesAny(rules, chain, {}) : closed.empty();
            if (named || IsCut(*reading)) {
                open = fmt::format("{}: input is dropped by default; {}", program,
                                   named ? "a rule names " + NamesOf(devices) + " or its network"
                                         : "the end of the rules is missing");
                continue;
            }
            const std::string command =
                is_nft && chain != "ip:filter INPUT"
                    ? NftCommand(view, chain, closed)
                    : fmt::format("sudo iptables -I INPUT -s {} -j ACCEPT", SubnetsOf(closed, ","));
            return ReportAs<found::kFilterClosed>(
                devices.empty() ? kWarn : SeverityOf(closed, devices), out, program,
                NamesOf(closed), FixOf(view, rules, closed, command));
        }
    }
    if (!open.empty()) return out.Ok(open);
    if (nft.refused() || (iptables.refused() && !nft.found())) {
        return Report<found::kFirewallUnread>(out, "the firewall's rules could not be read: " +
                                                       (nft.refused() ? nft.text : iptables.text));
    }
    if (nft.found() || iptables.found()) out.Ok("no rule drops input by default");
}

}  // namespace weft::doctor::checks
