#include "doctor/iptables_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using Cells = std::vector<std::string_view>;
constexpr const char* kUnknownMatch = " -m unknown";
constexpr size_t kMostListLines = 100'000;

// The columns of `iptables -L`, by the line above the rules.
struct Columns {
    bool counted = false;   // "pkts bytes", with -v: and so "in" and "out"
    bool numbered = false;  // "num", with --line-numbers
    size_t target() const { return (numbered ? 1u : 0u) + (counted ? 2u : 0u); }
};

std::optional<Columns> ColumnsOf(const Cells& cells) {
    Columns columns;
    columns.numbered = !cells.empty() && cells[0] == "num";
    const size_t next = columns.numbered ? 1 : 0;
    columns.counted = cells.size() > next && cells[next] == "pkts";
    const size_t at = columns.target();
    if (cells.size() < at + 2 || cells[at] != "target" || cells[at + 1] != "prot") return {};
    return columns;
}

// " -s 10.0.0.0/8", " ! -i lo"; "" where the cell means anything.
std::string Match(const char* option, std::string_view cell) {
    const bool negated = cell.starts_with('!');
    if (negated) cell.remove_prefix(1);
    if (cell == "*" || cell == "any" || cell == "anywhere" || cell == "0.0.0.0/0") return "";
    const bool address = option[1] == 's' || option[1] == 'd';
    if (address && !ParseIpv4(cell)) return kUnknownMatch;  // by name
    return fmt::format("{} {} {}", negated ? " !" : "", option, cell);
}

// "dpt:22", "dpts:1024:65535"; a service that is named is one port, and none of the ranks'.
std::string PortMatch(std::string_view cell) {
    const std::string_view ports = cell.substr(cell.find(':') + 1);
    const bool number =
        !ports.empty() && ports.find_first_not_of("0123456789:") == std::string_view::npos;
    return fmt::format(" --dport {}", number ? ports : "1");
}

// What stands behind the addresses: "tcp dpt:22 ctstate NEW /* words */ reject-with ...".
std::string Matches(const Cells& cells, size_t at) {
    std::string matches;
    for (; at < cells.size(); ++at) {
        const std::string_view cell = cells[at];
        const bool more = at + 1 < cells.size();
        if (cell == "tcp" || cell == "udp" || cell == "multiport") continue;
        if (cell == "/*") {
            while (at < cells.size() && cells[at] != "*/") ++at;
        } else if ((cell == "ctstate" || cell == "state") && more) {
            matches += fmt::format(" --{} {}", cell, cells[++at]);
        } else if (cell.starts_with("dpt:") || cell.starts_with("dpts:")) {
            matches += PortMatch(cell);
        } else if (cell == "dports" && more) {
            matches += fmt::format(" --dports {}", cells[++at]);
        } else if (cell == "reject-with" && more) {
            ++at;
        } else {
            return matches + kUnknownMatch;
        }
    }
    return matches;
}

// "  12   720 ACCEPT  6  --  *  *  0.0.0.0/0  0.0.0.0/0  tcp dpt:22"; "" where it decides nothing.
std::string ListedRule(const Cells& cells, const Columns& columns, std::string_view chain) {
    const size_t target = columns.target(), options = target + 2;
    const size_t source = options + (columns.counted ? 3 : 1);
    const bool fits = cells.size() > source + 1 &&
                      (cells[options].starts_with('-') || cells[options].starts_with('!'));
    if (!fits) return "";  // without a target the columns are one less
    std::string rule = fmt::format("-A {}", chain);
    const std::string_view protocol = cells[target + 1];
    if (protocol != "all" && protocol != "0") rule += fmt::format(" -p {}", protocol);
    if (columns.counted) rule += Match("-i", cells[options + 1]);
    rule += Match("-s", cells[source]) + Match("-d", cells[source + 1]);
    rule += Matches(cells, source + 2);
    if (!columns.counted) rule += kUnknownMatch;  // it may be one of the loopback's
    return rule + fmt::format(" -j {}\n", cells[target]);
}

// "Chain INPUT (policy DROP 211 packets, 12833 bytes)", "Chain ufw-user (1 references)".
std::string ListedChain(const Cells& cells) {
    if (cells.size() > 3 && cells[2] == "(policy") {
        std::string_view policy = cells[3];
        if (policy.ends_with(')')) policy.remove_suffix(1);
        return fmt::format("-P {} {}\n", cells[1], policy);
    }
    return fmt::format("-N {}\n", cells[1]);
}

std::string OfList(std::string_view text) {
    std::string rules, chain;
    std::optional<Columns> columns;
    size_t count = 0;
    for (std::string_view line : Lines(text)) {
        const Cells cells = Words(line.substr(0, 1024));
        if (cells.size() < 2 || ++count > kMostListLines) continue;
        if (cells[0] == "Chain") {
            chain = std::string(cells[1]);
            columns.reset();
            rules += ListedChain(cells);
        } else if (const auto head = ColumnsOf(cells)) {
            columns = head;
        } else if (columns) {
            rules += ListedRule(cells, *columns, chain);
        }
    }
    return rules;
}

// "*filter", ":INPUT DROP [0:0]", "-A INPUT ...", "COMMIT"
std::string OfSave(std::string_view text) {
    std::string rules;
    bool filter = false;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        if (line.starts_with('*')) filter = line == "*filter";
        if (!filter) continue;
        const Cells cells = Words(line);
        if (line.starts_with(':') && cells.size() >= 2) {
            const std::string_view name = cells[0].substr(1);
            rules += cells[1] == "-" ? fmt::format("-N {}\n", name)
                                     : fmt::format("-P {} {}\n", name, cells[1]);
        } else if (line.starts_with("-A ")) {
            rules += fmt::format("{}\n", line);
        } else if (line.starts_with('[') && line.find("] -A ") != line.npos) {  // -c: counters
            rules += fmt::format("{}\n", line.substr(line.find("] ") + 2));
        }
    }
    return rules;
}

}  // namespace

std::string IptablesRules(std::string_view text) {
    for (std::string_view line : Lines(text)) {
        if (line.starts_with("Chain ")) return OfList(text);
        if (line.starts_with('*')) return OfSave(text);
        if (line.starts_with('-')) break;
    }
    return std::string(text);
}

}  // namespace weft::doctor
