#include "doctor/packet_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/check.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using Verdict = FilterRule::Verdict;
using Tokens = std::vector<std::string>;

constexpr size_t kMostRules = 20'000;
constexpr int kMostDepth = 16, kMostSteps = 50'000;
// Where ranks listen: the usual range of ports of the system's choice.
constexpr int64_t kFirstPort = 32768, kLastPort = 60999;

// Words, quoted strings, and each of "{},:;" for itself, but "a:b" outside of braces whole.
Tokens Cut(std::string_view line) {
    Tokens tokens;
    int depth = 0;
    for (size_t at = 0; at < line.size();) {
        const char c = line[at];
        if (c == ' ' || c == '\t') {
            ++at;
        } else if (c == '"') {
            const size_t end = std::min(line.find('"', at + 1), line.size());
            tokens.emplace_back(line.substr(at + 1, end - at - 1));
            at = end + 1;
        } else if (c == '{' || c == '}' || c == ',' || c == ';') {
            depth += c == '{' ? 1 : c == '}' ? -1 : 0;
            tokens.emplace_back(1, c);
            ++at;
        } else {
            const size_t end = std::min(line.find_first_of(" \t{},;", at), line.size());
            tokens.emplace_back(line.substr(at, end - at));
            at = end;
        }
    }
    return tokens;
}

Verdict VerdictOf(std::string_view word) {
    if (word == "accept" || word == "ACCEPT") return Verdict::kAccept;
    if (word == "drop" || word == "reject" || word == "DROP" || word == "REJECT") {
        return Verdict::kDrop;
    }
    if (word == "jump") return Verdict::kJump;
    if (word == "goto") return Verdict::kGoto;
    if (word == "return" || word == "RETURN") return Verdict::kReturn;
    return Verdict::kNone;
}

bool Holds(const Tokens& list, std::string_view word) {
    return std::ranges::find(list, word) != list.end();
}

// One rule of nft, from left to right. Gives none where it is of another protocol, several where
// it holds a map of verdicts.
class NftRule {
  public:
    explicit NftRule(Tokens tokens) : tokens_(std::move(tokens)) {}

    std::vector<FilterRule> Take() {
        while (at_ < tokens_.size() && !never_ && rule_.verdict == Verdict::kNone) Step();
        if (never_) return {};
        if (!maps_.empty()) return std::move(maps_);
        if (rule_.verdict == Verdict::kNone) return {};
        return {std::move(rule_)};
    }

  private:
    std::string Next() { return at_ < tokens_.size() ? tokens_[at_++] : std::string(); }
    bool Is(std::string_view word) const { return at_ < tokens_.size() && tokens_[at_] == word; }

    // "x", "{ x, y }", each after an optional "!=".
    Tokens Values(bool* negated) {
        *negated = Is("!=");
        if (*negated) ++at_;
        if (!Is("{")) {
            Tokens values = {Next()};
            while (Is(",")) {  // established,related
                ++at_;
                values.push_back(Next());
            }
            return values;
        }
        ++at_;
        Tokens values;
        while (at_ < tokens_.size() && !Is("}")) {
            if (!Is(",")) values.push_back(tokens_[at_]);
            ++at_;
        }
        ++at_;
        return values;
    }
    void SetVerdict(FilterRule& rule, Verdict verdict) {
        rule.verdict = verdict;
        if (verdict == Verdict::kJump || verdict == Verdict::kGoto) rule.target = Next();
    }
    void Step() {
        const std::string word = Next();
        const Verdict verdict = VerdictOf(word);
        if (verdict != Verdict::kNone) return SetVerdict(rule_, verdict);
        if (word == "iifname" || word == "iif") return Interface();
        if (word == "ip") return Ip();
        if (word == "tcp" || word == "th") return Tcp();
        if (word == "ct") return Connection();
        if (word == "meta") return Meta();
        for (const char* other : {"ip6", "udp", "icmp", "icmpv6", "igmp", "sctp", "esp", "ah"}) {
            never_ = never_ || word == other;
        }
        if (word == "counter") {
            while (Is("packets") || Is("bytes")) at_ += 2;
        } else if (word == "comment" || word == "prefix") {
            ++at_;
        } else if (word == "log" || word == ";" || word == "level" || word == "flags") {
            at_ += word == "level" || word == "flags" ? 1 : 0;
        } else {
            rule_.uncertain = true;
        }
    }
    void Interface() {
        if (Is("vmap"))
            return Map([](FilterRule& rule, const std::string& key) {
                rule.interfaces = {key};
                return true;
            });
        rule_.interfaces = Values(&rule_.other_interfaces);
    }
    // "vmap { "eth0" : jump a, "eth1" : accept }"
    template <typename Key>
    void Map(Key take) {
        at_ += 2;
        while (at_ < tokens_.size() && !Is("}")) {
            std::string key = Next();
            if (key == ",") continue;
            if (key.ends_with(':')) {
                key.pop_back();
            } else if (Is(":")) {
                ++at_;
            }
            FilterRule rule = rule_;
            SetVerdict(rule, VerdictOf(Next()));
            if (take(rule, key) && rule.verdict != Verdict::kNone) maps_.push_back(std::move(rule));
        }
        ++at_;
        never_ = maps_.empty();
    }
    void Ip() {
        const std::string field = Next();
        bool negated = false;
        const Tokens values = Values(&negated);
        if (field == "saddr") {
            for (const std::string& value : values) {
                if (const auto address = ParseIpv4(value)) rule_.sources.push_back(*address);
            }
            rule_.uncertain = rule_.uncertain || negated || rule_.sources.empty();
        } else if (field == "protocol") {
            never_ = never_ || Holds(values, "tcp") == negated;
        } else if (field == "daddr" && !values.empty() && ParseIpv4(values[0])) {
            never_ = never_ || (ParseIpv4(values[0])->bits >> 28 == 14 && !negated);  // multicast
            rule_.uncertain = true;
        } else {
            rule_.uncertain = true;
        }
    }
    void Tcp() {
        const bool ports = Is("dport");
        ++at_;
        bool negated = false;
        const Tokens values = Values(&negated);
        if (!ports || negated) {
            rule_.uncertain = true;
            return;
        }
        for (const std::string& value : values) {
            if (const auto range = ParsePorts(value, '-')) rule_.ports.push_back(*range);
        }
        rule_.uncertain = rule_.uncertain || rule_.ports.empty();
    }
    void Connection() {
        const std::string field = Next();
        if (field == "state" && Is("vmap")) {
            return Map([](FilterRule&, const std::string& key) { return key == "new"; });
        }
        bool negated = false;
        const Tokens values = Values(&negated);
        if (field == "state") {
            never_ = never_ || Holds(values, "new") == negated;
        } else if (field == "status") {
            never_ = true;  // of addresses that were translated
        } else {
            rule_.uncertain = true;
        }
    }
    void Meta() {
        const std::string field = Next();
        if (field == "iifname" || field == "iif") return Interface();
        bool negated = false;
        const Tokens values = Values(&negated);
        if (field == "l4proto") {
            never_ = never_ || Holds(values, "tcp") == negated;
        } else if (field == "nfproto") {
            never_ = never_ || Holds(values, "ipv4") == negated;
        } else if (field == "pkttype") {
            never_ = never_ || negated == (Holds(values, "unicast") || Holds(values, "host"));
        } else {
            rule_.uncertain = true;
        }
    }

    Tokens tokens_;
    size_t at_ = 0;
    FilterRule rule_;
    std::vector<FilterRule> maps_;
    bool never_ = false;
};

// Calls take with every chain that packets reach, the entries first.
template <typename Take>
void EachReached(const PacketFilter& filter, Take take) {
    std::vector<std::string> waiting;
    std::set<std::string> seen;
    for (const auto& [name, chain] : filter) {
        if (chain.is_input) waiting.push_back(name);
    }
    while (!waiting.empty()) {
        const std::string name = waiting.back();
        waiting.pop_back();
        const auto found = filter.find(name);
        if (!seen.insert(name).second || found == filter.end()) continue;
        take(name, found->second);
        for (const FilterRule& rule : found->second.rules) {
            if (!rule.target.empty()) waiting.push_back(rule.target);
        }
    }
}

std::string AddressesText(const std::vector<Ipv4>& sources, const Names& names) {
    std::string text;
    for (const Ipv4& source : sources) {
        text += text.empty() ? "" : ",";
        text += names.AddressText(fmt::format("{}/{}", source.Text(), source.prefix));
    }
    return text;
}

// "eth*" stays a prefix.
std::string InterfaceText(const std::string& name, Names& names) {
    const bool prefix =
        name.ends_with('*') && IsUsualDeviceName(name.substr(0, name.size() - 1) + "0");
    return prefix ? name : names.Interface(name);
}

const char* VerdictText(Verdict verdict) {
    switch (verdict) {
        case Verdict::kNone: return "";
        case Verdict::kAccept: return "accept";
        case Verdict::kDrop: return "drop";
        case Verdict::kReturn: return "return";
        case Verdict::kJump: return "jump ";
        case Verdict::kGoto: return "goto ";
    }
    WEFT_CHECK(false);
}

// Without the table's name.
std::string_view BareChain(std::string_view name) {
    return name.substr(name.rfind(' ') + 1);
}

std::string NftText(const FilterRule& rule, Names& names) {
    std::string text = "\t\t";
    if (!rule.interfaces.empty()) {
        text += rule.other_interfaces ? "iifname != {" : "iifname {";
        for (const std::string& one : rule.interfaces) {
            text += fmt::format(" \"{}\",", InterfaceText(one, names));
        }
        text.back() = ' ';
        text += "} ";
    }
    if (!rule.sources.empty()) {
        text += fmt::format("ip saddr {{ {} }} ", AddressesText(rule.sources, names));
    }
    if (!rule.ports.empty()) {
        text += fmt::format("tcp dport {{ {} }} ", PortsText(rule.ports, '-'));
    }
    if (rule.uncertain) text += "other ";
    text += VerdictText(rule.verdict);
    if (!rule.target.empty()) text += names.Chain(BareChain(rule.target));
    return text + '\n';
}

std::string IptablesText(const FilterRule& rule, Names& names) {
    std::string text;
    if (!rule.interfaces.empty()) {
        std::string one = InterfaceText(rule.interfaces[0], names);
        if (one.ends_with('*')) one.back() = '+';
        text += fmt::format("{} -i {}", rule.other_interfaces ? " !" : "", one);
    }
    if (!rule.sources.empty()) text += " -s " + AddressesText(rule.sources, names);
    if (!rule.ports.empty()) {
        text += " -p tcp -m multiport --dports " + PortsText(rule.ports, ':');
    }
    if (rule.uncertain) text += " -m other";
    switch (rule.verdict) {
        case Verdict::kNone: return text;
        case Verdict::kAccept: return text + " -j ACCEPT";
        case Verdict::kDrop: return text + " -j DROP";
        case Verdict::kReturn: return text + " -j RETURN";
        case Verdict::kJump: return text + " -j " + names.Chain(rule.target);
        case Verdict::kGoto: return text + " -g " + names.Chain(rule.target);
    }
    WEFT_CHECK(false);
}

class Walk {
  public:
    Walk(const PacketFilter& filter, const NetDevice* device) : filter_(filter), device_(device) {}

    Passage Through(const FilterChain& base) {
        const Verdict end = Run(base, 0);
        const bool dropped = end == Verdict::kDrop || (end == Verdict::kNone && base.drops);
        if (!dropped) return Passage::kAccepted;
        return perhaps_ ? Passage::kUncertain : Passage::kDropped;
    }

  private:
    bool MatchesInterface(const FilterRule& rule) const {
        if (rule.interfaces.empty()) return true;
        const bool named = std::ranges::any_of(rule.interfaces, [&](std::string_view name) {
            if (device_ == nullptr) return name != "lo";
            if (!name.ends_with('*')) return name == device_->name;
            return device_->name.starts_with(name.substr(0, name.size() - 1));
        });
        return named != rule.other_interfaces;
    }
    bool MatchesSource(const FilterRule& rule) const {
        if (rule.sources.empty() || device_ == nullptr || device_->addresses.empty()) {
            return std::ranges::none_of(rule.sources, &Ipv4::IsLoopback);
        }
        return std::ranges::any_of(rule.sources, [&](const Ipv4& source) {
            return std::ranges::any_of(device_->addresses, [&](const Ipv4& own) {
                const int prefix = std::min(source.prefix, own.prefix);
                return Ipv4{own.bits, prefix}.network() == Ipv4{source.bits, prefix}.network();
            });
        });
    }
    bool Matches(const FilterRule& rule) const {
        const bool port = rule.ports.empty() || std::ranges::any_of(rule.ports, [](const auto& p) {
                              return p.first <= kFirstPort && p.last >= kLastPort;
                          });
        return port && MatchesInterface(rule) && MatchesSource(rule);
    }
    // What is decided at the end of the chain; kNone: nothing.
    Verdict Run(const FilterChain& chain, int depth) {
        for (const FilterRule& rule : chain.rules) {
            if (++steps_ > kMostSteps || depth > kMostDepth) {
                perhaps_ = true;
                return Verdict::kNone;
            }
            if (!Matches(rule)) continue;
            Verdict verdict = rule.verdict;
            if (verdict == Verdict::kReturn && !rule.uncertain) return Verdict::kNone;
            const bool jumps = verdict == Verdict::kJump || verdict == Verdict::kGoto;
            if (jumps) {
                const auto target = filter_.find(rule.target);
                perhaps_ = perhaps_ || target == filter_.end();
                verdict = target == filter_.end() ? Verdict::kNone : Run(target->second, depth + 1);
            }
            if (rule.uncertain) {
                perhaps_ = perhaps_ || verdict == Verdict::kAccept;
                continue;
            }
            if (verdict == Verdict::kAccept || verdict == Verdict::kDrop) return verdict;
            if (rule.verdict == Verdict::kGoto) return Verdict::kNone;
        }
        return Verdict::kNone;
    }

    const PacketFilter& filter_;
    const NetDevice* device_;
    int steps_ = 0;
    bool perhaps_ = false;
};

}  // namespace

std::optional<FilterRule::Ports> ParsePorts(std::string_view text, char dash) {
    const size_t at = text.find(dash);
    const auto first = Integer(text.substr(0, at));
    const auto last = at == std::string_view::npos ? first : Integer(text.substr(at + 1));
    if (!first || !last || *first < 0 || *last > 65535 || *first > *last) return {};
    return FilterRule::Ports{*first, *last};
}

std::string PortsText(const std::vector<FilterRule::Ports>& ports, char dash) {
    std::string text;
    for (const auto& [first, last] : ports) {
        text += text.empty() ? "" : ",";
        text += first == last ? std::to_string(first) : fmt::format("{}{}{}", first, dash, last);
    }
    return text;
}

PacketFilter ParseNft(std::string_view ruleset) {
    PacketFilter filter;
    std::string table;
    FilterChain* chain = nullptr;
    size_t rules = 0;
    int skipped = 0;  // braces that are open in a set, a map or the like
    for (std::string_view line : Lines(ruleset)) {
        line = Trim(line);
        const Tokens tokens = Cut(line.substr(0, 4096));
        if (tokens.empty()) continue;
        const auto opened = std::ranges::count(tokens, "{"),
                   closed = std::ranges::count(tokens, "}");
        if (skipped > 0) {
            skipped += static_cast<int>(opened - closed);
        } else if (tokens[0] == "table" && tokens.size() >= 3 && line.ends_with('{')) {
            table = tokens[1] + ":" + tokens[2];
        } else if (tokens[0] == "chain" && tokens.size() >= 2 && line.ends_with('{')) {
            chain = &filter[table + " " + tokens[1]];
        } else if (line == "}") {
            chain = nullptr;
        } else if (chain == nullptr) {
            if (line.ends_with('{')) skipped = 1;
        } else if (tokens[0] == "type") {
            const bool ipv4 = table.starts_with("ip:") || table.starts_with("inet:");
            chain->is_input = ipv4 && Contains(line, "filter hook input");
            chain->drops = Contains(line, "policy drop");
        } else if (rules < kMostRules) {
            for (FilterRule& rule : NftRule(tokens).Take()) {
                if (!rule.target.empty()) rule.target = table + " " + rule.target;
                chain->rules.push_back(std::move(rule));
                ++rules;
            }
        }
    }
    return filter;
}

namespace {

// One rule of iptables; false where it is of another protocol or state.
bool ParseIptablesRule(const Tokens& words, FilterRule& rule) {
    for (size_t i = 2; i < words.size(); ++i) {
        const std::string& word = words[i];
        const std::string value = i + 1 < words.size() ? words[i + 1] : "";
        const bool negated = words[i - 1] == "!";
        if (word == "!") continue;
        if (word == "-i") {
            rule.interfaces = {value};
            if (value.ends_with('+')) rule.interfaces[0].back() = '*';
            rule.other_interfaces = negated;
        } else if (word == "-s") {
            const auto address = ParseIpv4(value);
            if (address) rule.sources.push_back(*address);
            rule.uncertain = rule.uncertain || negated || !address;
        } else if (word == "-p") {
            const bool fits = value == "tcp" || value == "all" || value == "6" || value == "0";
            if (fits == negated) return false;
        } else if (word == "--dport" || word == "--dports") {
            for (std::string_view part : Split(value, ',')) {
                if (const auto range = ParsePorts(part, ':')) rule.ports.push_back(*range);
            }
            rule.uncertain = rule.uncertain || negated || rule.ports.empty();
        } else if (word == "--state" || word == "--ctstate") {
            if (Contains(value, "NEW") == negated) return false;
        } else if (word == "-j" || word == "-g") {
            rule.verdict = VerdictOf(value);
            if (rule.verdict == Verdict::kNone) {
                rule.verdict = word == "-j" ? Verdict::kJump : Verdict::kGoto;
                rule.target = value;
            }
            for (const char* only_marks : {"LOG", "NFLOG", "MARK", "CONNMARK", "TRACE"}) {
                if (value == only_marks) return false;
            }
            return true;  // what follows belongs to the target
        } else if (word == "-m") {
            constexpr std::array<std::string_view, 5> kPlain = {"tcp", "multiport", "state",
                                                                "conntrack", "comment"};
            rule.uncertain = rule.uncertain || std::ranges::find(kPlain, value) == kPlain.end();
        } else if (word != "--comment") {
            rule.uncertain = true;
        }
        ++i;
    }
    return false;
}

}  // namespace

PacketFilter ParseIptables(std::string_view rules) {
    PacketFilter filter;
    size_t count = 0;
    for (std::string_view line : Lines(rules)) {
        Tokens words;
        for (std::string& word : Cut(Trim(line).substr(0, 4096))) {
            // "ESTABLISHED,RELATED" and "80,443" are one word here.
            const bool joins = word == "," || (!words.empty() && words.back().ends_with(','));
            if (joins && !words.empty()) {
                words.back() += word;
            } else {
                words.push_back(std::move(word));
            }
        }
        if (words.size() < 2 || ++count > kMostRules) continue;
        if (words[0] == "-P" && words.size() >= 3) {
            filter[words[1]].drops = words[2] == "DROP";
        } else if (words[0] == "-N") {
            filter.try_emplace(words[1]);
        } else if (words[0] == "-A") {
            FilterRule rule;
            if (ParseIptablesRule(words, rule)) filter[words[1]].rules.push_back(std::move(rule));
        }
    }
    for (auto& [name, chain] : filter) chain.is_input = name == "INPUT";
    return filter;
}

std::string WriteNft(const PacketFilter& filter, Names& names) {
    std::string text;
    EachReached(filter, [&](const std::string& name, const FilterChain& chain) {
        const std::string table(Split(name, ' ')[0]);
        const bool any_family = table.starts_with("inet:");
        text += fmt::format("table {} {} {{\n\tchain {} {{\n", any_family ? "inet" : "ip",
                            names.Chain(Split(table, ':').back()), names.Chain(BareChain(name)));
        if (chain.is_input) {
            text += fmt::format("\t\ttype filter hook input priority filter; policy {};\n",
                                chain.drops ? "drop" : "accept");
        }
        for (const FilterRule& rule : chain.rules) text += NftText(rule, names);
        text += "\t}\n}\n";
    });
    return text;
}

std::string WriteIptables(const PacketFilter& filter, Names& names) {
    std::string text;
    EachReached(filter, [&](const std::string& name, const FilterChain& chain) {
        const std::string shown = names.Chain(name);
        text += chain.is_input ? fmt::format("-P INPUT {}\n", chain.drops ? "DROP" : "ACCEPT")
                               : fmt::format("-N {}\n", shown);
        for (const FilterRule& rule : chain.rules) {
            text += fmt::format("-A {}{}\n", shown, IptablesText(rule, names));
        }
    });
    return text;
}

Passage PassageBy(const PacketFilter& filter, const NetDevice* device) {
    Passage all = Passage::kAccepted;
    for (const auto& [name, chain] : filter) {
        if (!chain.is_input) continue;
        const Passage one = Walk(filter, device).Through(chain);
        if (one == Passage::kDropped) return one;
        if (one == Passage::kUncertain) all = one;
    }
    return all;
}

}  // namespace weft::doctor
