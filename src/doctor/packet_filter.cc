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

constexpr size_t kMostFilterRules = 20'000;
constexpr int kMostFilterDepth = 16, kMostSteps = 50'000;
// Where ranks listen: the usual range of ports of the system's choice.
constexpr int64_t kFirstPort = 32768, kLastPort = 60999;
constexpr size_t kMostLine = 16'384, kMostElements = 256;

// Of nft: words, quoted strings, and each of "{},;" for itself.
Tokens Cut(std::string_view line) {
    Tokens tokens;
    for (size_t at = 0; at < line.size();) {
        const char c = line[at];
        if (c == ' ' || c == '\t') {
            ++at;
        } else if (c == '"') {
            const size_t end = std::min(line.find('"', at + 1), line.size());
            tokens.emplace_back(line.substr(at + 1, end - at - 1));
            at = end + 1;
        } else if (c == '{' || c == '}' || c == ',' || c == ';') {
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

// Of iptables: words, and strings in quotes, in which a backslash stands before a quote.
Tokens CutWords(std::string_view line) {
    Tokens words;
    for (size_t at = 0; at < line.size();) {
        if (line[at] == ' ' || line[at] == '\t') {
            ++at;
            continue;
        }
        std::string word;
        const bool quoted = line[at] == '"';
        for (at += quoted ? 1 : 0; at < line.size(); ++at) {
            if (quoted ? line[at] == '"' : line[at] == ' ' || line[at] == '\t') break;
            if (line[at] == '\\' && at + 1 < line.size()) ++at;
            word += line[at];
        }
        at += quoted ? 1 : 0;
        words.push_back(std::move(word));
    }
    return words;
}

// "10.0.0.1", "10.0.0.0/24" or "10.0.0.1-10.0.0.9" as networks; none where it is something else.
std::vector<Ipv4> NetworksOf(std::string_view text) {
    const size_t dash = text.find('-');
    const auto first = ParseIpv4(text.substr(0, dash));
    if (!first) return {};
    if (dash == text.npos) return {*first};
    const auto last = ParseIpv4(text.substr(dash + 1));
    if (!last || first->prefix != 32 || last->prefix != 32) return {};
    std::vector<Ipv4> networks;
    for (uint64_t at = first->bits; at <= last->bits;) {
        int prefix = 32;  // the largest network that begins here and ends by `last`
        while (prefix > 0 && at % (uint64_t{2} << (32 - prefix)) == 0 &&
               at + (uint64_t{2} << (32 - prefix)) - 1 <= last->bits) {
            --prefix;
        }
        networks.push_back({static_cast<uint32_t>(at), prefix});
        at += uint64_t{1} << (32 - prefix);
    }
    return networks;
}

// Adds what a rule asks of the sender's address. What can't be read may be anything.
void AskSources(FilterRule& rule, const Tokens& values, bool negated) {
    const bool mixed = !rule.sources.empty() && rule.other_sources != negated;
    bool read = !values.empty() && !mixed;
    std::vector<Ipv4> sources;
    for (const std::string& value : values) {
        const std::vector<Ipv4> networks = NetworksOf(value);
        read = read && !networks.empty();
        sources.insert(sources.end(), networks.begin(), networks.end());
    }
    if (!read) {
        rule.uncertain = true;
        return;
    }
    rule.sources.insert(rule.sources.end(), sources.begin(), sources.end());
    rule.other_sources = negated;
}

void AskPorts(FilterRule& rule, const Tokens& values, char dash, bool negated) {
    bool read = !values.empty() && rule.ports.empty();
    std::vector<FilterRule::Ports> ports;
    for (const std::string& value : values) {
        const auto range = ParsePorts(value, dash);
        read = read && range.has_value();
        if (range) ports.push_back(*range);
    }
    rule.uncertain = rule.uncertain || !read;
    if (!read) return;
    rule.ports = std::move(ports);
    rule.other_ports = negated;
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

// Elements of the sets that are listed, by "TABLE NAME"; none of one that can't be told here.
using NftSets = std::map<std::string, Tokens>;

// One rule of nft, from left to right. Gives none where it is of another protocol, several where
// it holds a map of verdicts.
class NftRule {
  public:
    NftRule(Tokens tokens, const NftSets& sets, std::string table)
        : tokens_(std::move(tokens)), sets_(sets), table_(std::move(table)) {}

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

    // "x", "{ x, y }" or "@set", each after an optional "!=". None of a set that is not known.
    Tokens Values(bool* negated) {
        *negated = Is("!=");
        if (*negated) ++at_;
        if (at_ < tokens_.size() && tokens_[at_].starts_with('@')) {
            const auto set = sets_.find(table_ + " " + Next().substr(1));
            return set == sets_.end() ? Tokens() : set->second;
        }
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
        if (word == "fib") return Fib();
        for (const char* other : {"ip6", "udp", "icmp", "icmpv6", "igmp", "sctp", "esp", "ah"}) {
            never_ = never_ || word == other;
        }
        if (word == "counter") {
            while (Is("packets") || Is("bytes")) at_ += 2;
        } else if (word == "comment" || word == "prefix") {
            ++at_;
        } else if (word == "level" || word == "flags" || word == "group" || word == "snaplen" ||
                   word == "queue-threshold") {  // of log
            ++at_;
        } else if (word != "log" && word != ";") {
            rule_.uncertain = true;
        }
    }
    // "iifname . ip saddr { ... }", "ip saddr . tcp dport @set": what it asks is not known here.
    bool Joined() {
        if (!Is(".")) return false;
        rule_.uncertain = true;
        while (at_ < tokens_.size() && !Is("{") && !Is("vmap") && !tokens_[at_].starts_with('@')) {
            ++at_;
        }
        if (Is("vmap")) {
            UnknownMap();
        } else if (Is("{")) {
            while (at_ < tokens_.size() && !Is("}")) ++at_;
        }
        ++at_;
        return true;
    }
    // A map of verdicts that is not written out: it may accept.
    void UnknownMap() {
        at_ = tokens_.size();
        rule_.uncertain = true;
        rule_.verdict = Verdict::kAccept;
    }
    void Interface() {
        if (Joined()) return;
        if (Is("vmap"))
            return Map([](FilterRule& rule, const std::string& key) {
                rule.interfaces = {key};
                return true;
            });
        rule_.interfaces = Values(&rule_.other_interfaces);
        rule_.uncertain = rule_.uncertain || rule_.interfaces.empty();
    }
    // "vmap { "eth0" : jump a, "eth1" : accept }"
    template <typename Key>
    void Map(Key take) {
        if (at_ + 1 >= tokens_.size() || tokens_[at_ + 1] != "{") return UnknownMap();
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
        if (Joined()) return;
        if (Is("vmap")) return UnknownMap();
        bool negated = false;
        const Tokens values = Values(&negated);
        if (field == "saddr") {
            AskSources(rule_, values, negated);
        } else if (field == "protocol") {
            never_ = never_ || Holds(values, "tcp") == negated;
        } else if (field == "daddr" && !values.empty() && ParseIpv4(values[0])) {
            const Ipv4 to = *ParseIpv4(values[0]);
            const bool elsewhere = to.bits >> 28 == 14 || to.IsLoopback();  // or multicast
            never_ = never_ || (elsewhere && !negated);
            rule_.uncertain = rule_.uncertain || !elsewhere;
        } else {
            rule_.uncertain = true;
        }
    }
    void Tcp() {
        const std::string field = Next();
        if (field == "flags") return Flags();
        if (Joined()) return;
        if (Is("vmap")) return UnknownMap();
        bool negated = false;
        const Tokens values = Values(&negated);
        if (field == "dport") return AskPorts(rule_, values, '-', negated);
        rule_.uncertain = true;
    }
    // "syn / fin,syn,rst,ack" and "& (fin | syn | rst | ack) == syn" are of new connections.
    void Flags() {
        const auto belongs = [](std::string_view token) {
            constexpr std::array<std::string_view, 8> kFlags = {"fin", "syn", "rst", "psh",
                                                                "ack", "urg", "ecn", "cwr"};
            while (token.starts_with('(')) token.remove_prefix(1);
            while (token.ends_with(')')) token.remove_suffix(1);
            return token.find_first_not_of("&|=!/,") == token.npos ||
                   std::ranges::find(kFlags, token) != kFlags.end();
        };
        std::string text;
        while (at_ < tokens_.size() && belongs(tokens_[at_])) text += Next();
        const bool opens = text == "syn" || text.starts_with("syn/") || text.ends_with("==syn");
        rule_.uncertain = rule_.uncertain || !opens;
    }
    void Connection() {
        const std::string field = Next();
        if (Joined()) return;
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
    // "fib daddr type local", "fib daddr type { broadcast, anycast, multicast }".
    void Fib() {
        const std::string key = Next();
        const bool to_type = key == "daddr" && Is("type");
        if (!to_type) {
            rule_.uncertain = true;
            return;
        }
        ++at_;
        bool negated = false;
        never_ = never_ || Holds(Values(&negated), "local") == negated;
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
    const NftSets& sets_;
    std::string table_;
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
        text += fmt::format("ip saddr {}{{ {} }} ", rule.other_sources ? "!= " : "",
                            AddressesText(rule.sources, names));
    }
    if (!rule.ports.empty()) {
        text += fmt::format("tcp dport {}{{ {} }} ", rule.other_ports ? "!= " : "",
                            PortsText(rule.ports, '-'));
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
    if (!rule.sources.empty()) {
        text += fmt::format("{} -s {}", rule.other_sources ? " !" : "",
                            AddressesText(rule.sources, names));
    }
    if (!rule.ports.empty()) {
        text += fmt::format(" -p tcp -m multiport{} --dports {}", rule.other_ports ? " !" : "",
                            PortsText(rule.ports, ':'));
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
    // Whether a rule is about all peers that come in by the device, some or none.
    enum class Match { kNone, kSome, kAll };

    Match MatchInterface(const FilterRule& rule) const {
        if (rule.interfaces.empty()) return Match::kAll;
        const bool named = std::ranges::any_of(rule.interfaces, [&](std::string_view name) {
            if (device_ == nullptr) return name != "lo";
            if (!name.ends_with('*')) return name == device_->name;
            return device_->name.starts_with(name.substr(0, name.size() - 1));
        });
        if (named == rule.other_interfaces) return Match::kNone;
        return device_ == nullptr && !rule.other_interfaces ? Match::kSome : Match::kAll;
    }
    Match MatchSource(const FilterRule& rule) const {
        if (rule.sources.empty()) return Match::kAll;
        if (device_ == nullptr || device_->addresses.empty()) {
            const bool local = std::ranges::all_of(rule.sources, &Ipv4::IsLoopback);
            if (!local) return Match::kSome;
            return rule.other_sources ? Match::kAll : Match::kNone;
        }
        bool any = false, all = true;  // of the peers are among the sources
        for (const Ipv4& own : device_->addresses) {
            bool covered = false;
            for (const Ipv4& source : rule.sources) {
                const int prefix = std::min(source.prefix, own.prefix);
                const bool meets =
                    Ipv4{own.bits, prefix}.network() == Ipv4{source.bits, prefix}.network();
                any = any || meets;
                covered = covered || (meets && source.prefix <= own.prefix);
            }
            all = all && covered;
        }
        if (rule.other_sources) return !any ? Match::kAll : all ? Match::kNone : Match::kSome;
        return all ? Match::kAll : any ? Match::kSome : Match::kNone;
    }
    Match Matches(const FilterRule& rule) const {
        const bool port = rule.ports.empty() ||
                          rule.other_ports != std::ranges::any_of(rule.ports, [](const auto& p) {
                              return p.first <= kFirstPort && p.last >= kLastPort;
                          });
        return port ? std::min(MatchInterface(rule), MatchSource(rule)) : Match::kNone;
    }
    // What is decided at the end of the chain; kNone: nothing.
    Verdict Run(const FilterChain& chain, int depth) {
        for (const FilterRule& rule : chain.rules) {
            if (++steps_ > kMostSteps || depth > kMostFilterDepth) {
                perhaps_ = true;
                return Verdict::kNone;
            }
            const Match match = Matches(rule);
            if (match == Match::kNone) continue;
            const bool some = match == Match::kSome;
            Verdict verdict = rule.verdict;
            if (verdict == Verdict::kReturn) {
                if (!rule.uncertain && !some) return Verdict::kNone;
                // Who returns here may be let in further up.
                perhaps_ = true;
                continue;
            }
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
            if (verdict == Verdict::kAccept) return verdict;
            if (some) continue;
            if (verdict == Verdict::kDrop) return verdict;
            if (rule.verdict == Verdict::kGoto) return Verdict::kNone;
        }
        return Verdict::kNone;
    }

    const PacketFilter& filter_;
    const NetDevice* device_;
    int steps_ = 0;
    bool perhaps_ = false;
};

// A set as `nft list ruleset` writes it, line by line up to its closing brace.
class NftSet {
  public:
    // False once the set has ended.
    bool Take(std::string_view line, const Tokens& tokens) {
        depth_ += static_cast<int>(std::ranges::count(tokens, "{")) -
                  static_cast<int>(std::ranges::count(tokens, "}"));
        size_t at = 0;
        if (!inside_ && tokens.size() > 2 && tokens[0] == "elements") {
            inside_ = true;
            at = 3;  // elements = {
        }
        for (; inside_ && at < tokens.size(); ++at) {
            if (tokens[at] == "." || tokens[at] == ":") told_ = false;  // joined, or a map
            const bool separates = tokens[at] == "," || tokens[at] == "}";
            if (!separates && begins_) elements_.push_back(tokens[at]);
            begins_ = tokens[at] == ",";
        }
        told_ = told_ && line.size() <= kMostLine && elements_.size() <= kMostElements;
        if (!told_) elements_.clear();
        return depth_ > 0;
    }
    Tokens Elements() { return told_ ? std::move(elements_) : Tokens(); }

  private:
    int depth_ = 1;
    bool inside_ = false, begins_ = true, told_ = true;
    Tokens elements_;
};

}  // namespace

PacketFilter ParseNft(std::string_view ruleset) {
    PacketFilter filter;
    NftSets sets;
    std::string table, set_name;
    std::optional<NftSet> set;  // that is being read
    FilterChain* chain = nullptr;
    size_t rules = 0;
    for (std::string_view line : Lines(ruleset)) {
        line = Trim(line);
        // "table inet firewalld { # progname firewalld"
        if (const size_t note = line.find("{ # "); note != line.npos)
            line = line.substr(0, note + 1);
        const Tokens tokens = Cut(line.substr(0, kMostLine));
        if (tokens.empty()) continue;
        if (set) {
            if (set->Take(line, tokens)) continue;
            sets[set_name] = set->Elements();
            set.reset();
        } else if (tokens[0] == "table" && tokens.size() >= 3 && line.ends_with('{')) {
            table = tokens[1] + ":" + tokens[2];
        } else if (tokens[0] == "chain" && tokens.size() >= 2 && line.ends_with('{')) {
            chain = &filter[table + " " + tokens[1]];
        } else if (line == "}") {
            chain = nullptr;
        } else if (chain == nullptr) {
            if (!line.ends_with('{')) continue;
            set.emplace();
            set_name = table + " " + (tokens[0] == "set" ? tokens[1] : "");
        } else if (tokens[0] == "type") {
            const bool ipv4 = table.starts_with("ip:") || table.starts_with("inet:");
            chain->is_input = ipv4 && Contains(line, "filter hook input");
            chain->drops = Contains(line, "policy drop");
        } else if (rules < kMostFilterRules) {
            for (FilterRule& rule : NftRule(tokens, sets, table).Take()) {
                if (!rule.target.empty()) rule.target = table + " " + rule.target;
                chain->rules.push_back(std::move(rule));
                ++rules;
            }
        }
    }
    return filter;
}

namespace {

// Whether "--tcp-flags MASK FLAGS" holds for the packet that opens a connection: SYN alone.
bool OpensConnection(std::string_view mask, std::string_view flags) {
    const bool looks = Contains(mask, "SYN") || mask == "ALL";
    return flags == (looks ? "SYN" : "NONE");
}

// One rule of iptables, as `iptables -S` writes it.
class IptablesRule {
  public:
    explicit IptablesRule(const Tokens& words) : words_(words) {}

    // None where it is of another protocol or state, or decides nothing.
    std::optional<FilterRule> Take() {
        for (at_ = 2; at_ < words_.size();) {
            const bool negated = words_[at_] == "!";
            if (negated && ++at_ == words_.size()) break;
            const std::string option = words_[at_++];
            if (!Option(option, negated)) return {};
            if (option == "-j" || option == "-g") return std::move(rule_);
        }
        return {};
    }

  private:
    std::string Value() { return at_ < words_.size() ? words_[at_++] : std::string(); }
    Tokens Values() {
        const std::string value = Value();
        Tokens values;
        for (std::string_view part : Split(value, ',')) values.emplace_back(part);
        return values;
    }
    // False where the rule is not about a new connection over TCP.
    bool Option(const std::string& option, bool negated) {
        if (option == "-j" || option == "-g") return Target(option);
        if (option == "-i") {
            rule_.interfaces = {Value()};
            if (rule_.interfaces[0].ends_with('+')) rule_.interfaces[0].back() = '*';
            rule_.other_interfaces = negated;
        } else if (option == "-s" || option == "--src-range") {
            AskSources(rule_, Values(), negated);
        } else if (option == "-p") {
            const std::string value = Value();
            const bool fits = value == "tcp" || value == "all" || value == "6" || value == "0";
            return fits != negated;
        } else if (option == "--dport" || option == "--dports") {
            AskPorts(rule_, Values(), ':', negated);
        } else if (option == "--state" || option == "--ctstate") {
            return Contains(Value(), "NEW") != negated;
        } else if (option == "--tcp-flags") {
            const std::string mask = Value();
            return OpensConnection(mask, Value()) != negated;
        } else if (option == "-m") {
            constexpr std::array<std::string_view, 8> kPlain = {"tcp",       "multiport", "state",
                                                                "conntrack", "comment",   "iprange",
                                                                "addrtype",  "pkttype"};
            rule_.uncertain = std::ranges::find(kPlain, Value()) == kPlain.end() || rule_.uncertain;
        } else if (option == "--comment") {
            ++at_;
        } else if (option == "--dst-type") {
            return Contains(Value(), "LOCAL") != negated;
        } else if (option == "--src-type") {
            return Contains(Value(), "UNICAST") != negated;
        } else if (option == "--pkt-type") {
            return Contains(Value(), "unicast") != negated;
        } else if (option == "-d") {
            if (!Destination(Value(), negated)) return false;
        } else {
            rule_.uncertain = true;  // how many values it has is not known
            while (at_ < words_.size() && words_[at_] != "!" && !words_[at_].starts_with('-'))
                ++at_;
        }
        return true;
    }
    // False where no packet to this host's own addresses is meant: multicast, its loopback.
    bool Destination(const std::string& value, bool negated) {
        const auto address = ParseIpv4(value);
        const bool elsewhere = address && (address->bits >> 28 == 14 || address->IsLoopback() ||
                                           (address->bits == ~0u && address->prefix == 32));
        if (elsewhere) return negated;
        rule_.uncertain = true;
        return true;
    }
    bool Target(const std::string& option) {
        const std::string value = Value();
        rule_.verdict = VerdictOf(value);
        if (rule_.verdict == Verdict::kNone) {
            rule_.verdict = option == "-j" ? Verdict::kJump : Verdict::kGoto;
            rule_.target = value;
        }
        constexpr std::array<std::string_view, 5> kOnlyMarks = {"LOG", "NFLOG", "MARK", "CONNMARK",
                                                                "TRACE"};
        return std::ranges::find(kOnlyMarks, value) == kOnlyMarks.end();
    }

    const Tokens& words_;
    size_t at_ = 0;
    FilterRule rule_;
};

}  // namespace

PacketFilter ParseIptables(std::string_view rules) {
    PacketFilter filter;
    size_t count = 0;
    for (std::string_view line : Lines(rules)) {
        const Tokens words = CutWords(Trim(line).substr(0, kMostLine));
        if (words.size() < 2 || ++count > kMostFilterRules) continue;
        if (words[0] == "-P" && words.size() >= 3) {
            filter[words[1]].drops = words[2] == "DROP";
        } else if (words[0] == "-N") {
            filter.try_emplace(words[1]);
        } else if (words[0] == "-A") {
            auto rule = IptablesRule(words).Take();
            if (rule) filter[words[1]].rules.push_back(std::move(*rule));
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

Passage PassageBy(const PacketFilter& filter, const NetDevice* device, std::string* drops) {
    Passage all = Passage::kAccepted;
    for (const auto& [name, chain] : filter) {
        if (!chain.is_input) continue;
        const Passage one = Walk(filter, device).Through(chain);
        if (one == Passage::kDropped) {
            if (drops != nullptr) *drops = name;
            return one;
        }
        if (one == Passage::kUncertain) all = one;
    }
    return all;
}

}  // namespace weft::doctor
