#include "doctor/ufw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

using Verdict = FilterRule::Verdict;

constexpr size_t kMostRules = 20'000;

struct Action {
    std::string_view words;
    Verdict verdict;
    bool uncertain;
};
// LIMIT refuses a peer that opens six connections within 30 seconds.
// Without "IN" as `ufw status` has it, without "verbose".
constexpr std::array<Action, 8> kActions = {{{" ALLOW IN ", Verdict::kAccept, false},
                                             {" LIMIT IN ", Verdict::kAccept, true},
                                             {" DENY IN ", Verdict::kDrop, false},
                                             {" REJECT IN ", Verdict::kDrop, false},
                                             {" ALLOW ", Verdict::kAccept, false},
                                             {" LIMIT ", Verdict::kAccept, true},
                                             {" DENY ", Verdict::kDrop, false},
                                             {" REJECT ", Verdict::kDrop, false}}};

// Its words are translated, the names of policies and actions are not.
bool IsActive(std::string_view first) {
    std::string line(first);
    std::ranges::transform(line, line.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    });
    for (std::string_view off : {"inakt", "inact", "inatt", "inati", "niet"}) {
        if (Contains(line, off)) return false;
    }
    for (std::string_view on : {": active", ": aktiv", ": actif", ": activ", ": attiv", ": ativ"}) {
        if (Contains(line, on)) return true;
    }
    return false;
}

// "Default: deny (incoming), allow (outgoing), disabled (routed)": the first is of what comes in.
bool DropsByDefault(std::string_view status) {
    for (std::string_view line : Lines(status)) {
        const size_t open = line.find(" (");
        if (open == line.npos || !Contains(line, "), ")) continue;
        const auto words = Words(line.substr(0, open));
        const std::string_view policy = words.empty() ? "" : words.back();
        if (policy == "deny" || policy == "reject") return true;
        if (policy == "allow") return false;
    }
    return !Contains(status, "allow (incoming)");
}

// Reads one side of a line, "10.0.0.1 22/tcp (OpenSSH) on eno1".
class Side {
  public:
    Side(std::string_view text, FilterRule& rule) : words_(Words(text)), rule_(rule) {}

    // False where the rule is of IPv6, or of another protocol than TCP.
    bool To() {
        return Each([&](std::string_view word) {
            const auto ports = PortsIn(word);
            if (ports.empty()) rule_.uncertain = true;  // a destination, an application
            rule_.ports.insert(rule_.ports.end(), ports.begin(), ports.end());
        });
    }
    bool From() {
        return Each([&](std::string_view word) {
            const auto address = ParseIpv4(word);
            if (address) rule_.sources.push_back(*address);
            rule_.uncertain = rule_.uncertain || !address;  // the sender's port
        });
    }

  private:
    template <typename Take>
    bool Each(Take take) {
        for (size_t i = 0; i < words_.size(); ++i) {
            std::string_view word = words_[i];
            if (word == "on" && i + 1 < words_.size()) {
                rule_.interfaces = {std::string(words_[++i])};
                continue;
            }
            if (word.starts_with('(')) {  // "(v6)", "(log)", "(Nginx Full (v6))"
                for (; i < words_.size(); ++i) {
                    if (Contains(words_[i], "(v6)")) return false;
                    if (words_[i].ends_with(')')) break;
                }
                continue;
            }
            if (!TakeProtocol(word) || std::ranges::count(word, ':') > 1) return false;
            if (word != "Anywhere") take(word);
        }
        return true;
    }
    // "22/tcp" -> "22"; false where it is another one.
    static bool TakeProtocol(std::string_view& word) {
        const size_t slash = word.rfind('/');
        if (slash == word.npos || slash + 1 == word.size()) return true;
        const std::string_view protocol = word.substr(slash + 1);
        const bool letters = std::ranges::all_of(
            protocol, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
        if (!letters || Integer(protocol)) return true;  // "10.0.0.0/24"
        word.remove_suffix(protocol.size() + 1);
        return protocol == "tcp" || protocol == "any";
    }
    // "80,443,1024:65535"; none where it is something else.
    static std::vector<FilterRule::Ports> PortsIn(std::string_view word) {
        std::vector<FilterRule::Ports> ports;
        for (std::string_view part : Split(word, ',')) {
            const auto range = ParsePorts(part, ':');
            if (!range) return {};
            ports.push_back(*range);
        }
        return ports;
    }

    std::vector<std::string_view> words_;
    FilterRule& rule_;
};

std::optional<FilterRule> ParseRule(std::string_view line) {
    if (const size_t comment = line.find(" #"); comment != line.npos)
        line = line.substr(0, comment);
    for (const Action& action : kActions) {
        const size_t at = line.find(action.words);
        if (at == line.npos) continue;
        const std::string_view after = Trim(line.substr(at + action.words.size()));
        if (after.starts_with("OUT ") || after.starts_with("FWD ")) return {};
        FilterRule rule;
        rule.verdict = action.verdict;
        rule.uncertain = action.uncertain;
        const bool fits = Side(line.substr(0, at), rule).To() &&
                          Side(line.substr(at + action.words.size()), rule).From();
        return fits ? std::optional(std::move(rule)) : std::nullopt;
    }
    return {};
}

std::string UfwRule(const FilterRule& rule, Names& names) {
    std::string to = rule.ports.empty() ? "" : PortsText(rule.ports, ':') + "/tcp";
    if (rule.uncertain) to += to.empty() ? "Other" : " Other";
    if (to.empty()) to = "Anywhere";
    if (!rule.interfaces.empty()) to += " on " + names.Interface(rule.interfaces[0]);
    std::string from;
    for (const Ipv4& source : rule.sources) {
        from += from.empty() ? "" : " ";
        from += names.AddressText(source.prefix == 32
                                      ? source.Text()
                                      : fmt::format("{}/{}", source.Text(), source.prefix));
    }
    return fmt::format("{:<26} {:<11} {}\n", to,
                       rule.verdict == Verdict::kAccept ? "ALLOW IN" : "DENY IN",
                       from.empty() ? "Anywhere" : from);
}

}  // namespace

Ufw ParseUfw(std::string_view status) {
    Ufw ufw;
    ufw.active = !status.empty() && IsActive(Lines(status)[0]);
    ufw.input.is_input = true;
    ufw.input.drops = DropsByDefault(status);
    for (std::string_view line : Lines(status)) {
        auto rule = ParseRule(line.substr(0, 1024));
        if (rule && ufw.input.rules.size() < kMostRules) {
            ufw.input.rules.push_back(std::move(*rule));
        }
    }
    return ufw;
}

std::string WriteUfw(const Ufw& ufw, Names& names) {
    std::string text =
        fmt::format("Status: {}\nDefault: {} (incoming)\n\n", ufw.active ? "active" : "inactive",
                    ufw.input.drops ? "deny" : "allow");
    for (const FilterRule& rule : ufw.input.rules) text += UfwRule(rule, names);
    return text;
}

}  // namespace weft::doctor
