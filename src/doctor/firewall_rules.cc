#include "doctor/firewall_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "doctor/pseudonyms.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostRules = 20'000;
constexpr int kMostDepth = 16;
constexpr int64_t kManyPorts = 1000;

// Words of a rule, separated by blanks, quotes and brackets.
std::vector<std::string> WordsOfRule(std::string_view rule) {
    std::string plain(rule);
    std::ranges::replace_if(
        plain, [](char c) { return std::string_view("\"'{},;=()").find(c) != std::string::npos; },
        ' ');
    std::vector<std::string> words;
    for (std::string_view word : Words(std::string_view(plain))) words.emplace_back(word);
    return words;
}

bool Overlap(const Ipv4& a, const Ipv4& b) {
    const int prefix = std::min(a.prefix, b.prefix);
    return prefix > 0 && Ipv4{a.bits, prefix}.network() == Ipv4{b.bits, prefix}.network();
}

// "10.0.0.0/24", "10.0.0.1", "10.0.0.1-10.0.0.9"
bool NamesNetwork(std::string_view word, const std::vector<NetDevice>& devices) {
    const size_t dash = word.find('-');
    const auto first = ParseIpv4(word.substr(0, dash));
    const auto last = dash == word.npos ? first : ParseIpv4(word.substr(dash + 1));
    if (!first || !last || first->IsLoopback() || first->prefix == 0) return false;
    if (devices.empty()) return first->prefix < 32;
    for (const NetDevice& device : devices) {
        for (const Ipv4& own : device.addresses) {
            const bool inside = first->bits <= own.bits && own.bits <= last->bits;
            if (inside || Overlap(*first, own) || Overlap(*last, own)) return true;
        }
    }
    return false;
}

// "enp1s0f0np0", or "enp*" and "enp+".
bool NamesInterface(std::string_view word, const std::vector<NetDevice>& devices) {
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

// The rule may accept all traffic of ranks over the devices.
bool NamesFabric(std::string_view rule, const std::vector<NetDevice>& devices) {
    const auto words = WordsOfRule(rule);
    const auto is = [&](auto&& test) {
        return std::ranges::any_of(words,
                                   [&](const std::string& word) { return test(word, devices); });
    };
    const bool ports = std::ranges::any_of(words, AreManyPorts);
    if (ports && !Contains(rule, "udp")) return true;
    if (!ports && (Contains(rule, "dport") || Contains(rule, "dpt:") || Contains(rule, "/tcp"))) {
        return false;
    }
    for (const char* other : {"udp", "icmp", "ip6 ", "(v6)"}) {
        if (Contains(rule, other)) return false;
    }
    // The content of a kernel set is unknown.
    if (Contains(rule, "match-set") || is(NamesNetwork) || is(NamesInterface)) return true;
    if (!devices.empty()) return false;
    bool asks = false;  // the rule has an interface condition; names follow
    for (const std::string& word : words) {
        const bool name = word != "lo" && word != "!=" && word != "!";
        if (asks && name && !IsUsualDeviceName(word) && !word.starts_with('@')) asks = false;
        if (asks && name) return true;
        asks = asks || word == "-i" || word == "iifname" || word == "iif" || word == "on";
    }
    return false;
}

std::string VerdictOf(std::string_view word) {
    std::string target(word);
    if (word == "REJECT" || word == "reject" || word == "DROP") target = "drop";
    if (word == "ACCEPT") target = "accept";
    if (word == "RETURN") target = "return";
    return target;
}

// "counter packets 0 bytes 0 jump fabric", "reject with icmpx admin-prohibited", "accept"
FilterRule NftRule(const std::string& table, const std::string& chain, std::string_view text) {
    FilterRule rule{table + " " + chain, std::string(text), "", true};
    const auto words = WordsOfRule(text);
    bool logs = false;  // options of `log` follow
    for (size_t i = 0; i < words.size() && rule.target.empty(); ++i) {
        const std::string& word = words[i];
        if (word == "counter" || word == "packets" || word == "bytes") continue;
        logs = logs || word == "log";
        if (word == "jump" || word == "goto") {
            rule.target = i + 1 < words.size() ? table + " " + words[i + 1] : "";
        } else if (word == "accept" || word == "drop" || word == "reject" || word == "return") {
            rule.target = VerdictOf(word);
        } else if (!logs && (i == 0 || !Integer(word))) {
            rule.always = false;
        }
    }
    return rule;
}

// A line of `iptables -L`: "ACCEPT  all  --  anywhere  anywhere", with -v after two counts.
void AddListed(std::string_view line, const std::string& chain, FilterRules& all) {
    auto words = WordsOfRule(line);
    while (!words.empty() && LeadingNumber(words[0])) words.erase(words.begin());
    if (words.size() < 5 || words[0] == "target" || words[0] == "pkts") return;
    const bool verbose = words.size() > 6 && words[3] != "anywhere" && !ParseIpv4(words[3]);
    const std::vector<std::string> asked(words.begin() + (verbose ? 3 : 2), words.end());
    const bool plain = std::ranges::all_of(asked, [](const std::string& word) {
        return word == "--" || word == "*" || word == "any" || word == "anywhere" ||
               word == "0.0.0.0/0" || word.starts_with("reject-with") || word.starts_with("icmp-");
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

}  // namespace

std::string FilterRules::DropsByDefault() const {
    for (const std::string& input : inputs) {
        if (DropsIn(*this, input, 0)) return input;
    }
    return "";
}

bool FilterRules::NamesAny(const std::vector<NetDevice>& devices) const {
    std::set<std::string> reached(inputs.begin(), inputs.end());
    for (int depth = 0; depth < kMostDepth; ++depth) {
        for (const FilterRule& rule : rules) {
            if (reached.contains(rule.chain)) reached.insert(rule.target);
        }
    }
    return std::ranges::any_of(rules, [&](const FilterRule& rule) {
        return rule.target != "drop" && reached.contains(rule.chain) &&
               NamesFabric(rule.text, devices);
    });
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
            all.inputs.push_back(table + " " + chain);
            if (Contains(line, "policy drop")) all.dropping.push_back(all.inputs.back());
        } else if (!chain.empty() && words[0] != "}") {
            all.rules.push_back(NftRule(table, chain, line));
        } else if (words[0] != "}") {  // any rule may accept the elements of a set
            all.rules.push_back({"sets", std::string(line), "set"});
        }
    }
    all.inputs.emplace_back("sets");
    return all;
}

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

FilterRules ParseUfw(std::string_view status) {
    FilterRules all;
    const std::string_view state = After(status, "Status:");
    if (state != "active" && state != "Aktiv" && state != "aktiv") return all;
    all.inputs = {"ufw"};
    if (!Contains(status, "allow (incoming)")) all.dropping = {"ufw"};
    for (std::string_view line : Lines(status)) {
        line = line.substr(0, line.find(" #"));
        const size_t allow = line.find(" ALLOW ");
        if (allow == line.npos || Contains(line, " ALLOW OUT") || Contains(line, " ALLOW FWD")) {
            continue;
        }
        const bool all_of_it =
            Trim(line.substr(0, allow)) == "Anywhere" && Trim(line).ends_with(" Anywhere");
        all.rules.push_back({"ufw", std::string(line), "accept", all_of_it});
    }
    return all;
}

bool FirewallZone::Holds(const NetDevice& device) const {
    for (const std::string& line : lines) {
        if (!line.starts_with("interfaces:") && !line.starts_with("sources:")) continue;
        for (std::string_view word : Words(std::string_view(line))) {
            if (word == device.name || NamesNetwork(word, {device})) return true;
            if (word.starts_with("ipset:")) return true;
        }
    }
    return false;
}

bool FirewallZone::Opens(const std::vector<NetDevice>& devices) const {
    const bool described = std::ranges::any_of(
        lines, [](const std::string& line) { return line.starts_with("target:"); });
    if (!described && (name == "trusted" || name == "FedoraWorkstation")) return true;
    return std::ranges::any_of(lines, [&](const std::string& line) {
        const bool ports = line.starts_with("ports:") && Contains(line, "/tcp");
        if (line.starts_with("target: ACCEPT")) return true;
        if (line.starts_with("protocols:") && Contains(line, "tcp")) return true;
        if (ports || (line.starts_with("rule ") && line.ends_with("accept"))) {
            for (std::string_view word : Words(std::string_view(line))) {
                if (ports && word.ends_with("/tcp") && AreManyPorts(word)) return true;
            }
            return !ports && NamesFabric(line, devices);
        }
        return false;
    });
}

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

}  // namespace weft::doctor
