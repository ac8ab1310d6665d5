// Checks that ranks on the hosts can connect to each other.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/path.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr size_t kMostFound = 64;

// outcomes: results for the ports of one peer.
void JudgePorts(const std::string& from, const Path& path, std::string_view outcomes,
                Findings& out) {
    const std::string where =
        fmt::format("{} to {} ({}) by {}", from, path.address, path.peer, path.device);
    std::string open, filtered, other;
    for (std::string_view line : Lines(outcomes)) {
        const auto words = Words(line);
        if (words.size() < 3 || words[0] != path.address) continue;
        std::string& list = words[2] == "open" ? open : words[2] == "filtered" ? filtered : other;
        const std::string_view why = line.substr(line.find(words[2]));
        list += fmt::format("{}{}", list.empty() ? "" : ", ", words[1]);
        if (&list == &other) list += fmt::format(" ({})", why);
    }
    if (!filtered.empty()) {
        out.Fail(fmt::format("{}: no answer on port {}", where, filtered),
                 "a connection to the worker's port, and to a port that the system chooses",
                 "a firewall drops the connection: ranks on these hosts time out",
                 fmt::format("accept the subnet of {} on {} ('weft doctor --check firewall' there "
                             "names the rule)",
                             path.address, ShellWord(path.peer)));
    } else if (!other.empty()) {
        out.Fail(fmt::format("{}: no connection to port {}", where, other),
                 "a connection to the worker's port, and to a port that the system chooses",
                 "a firewall rejects the connection, or another program has the port",
                 fmt::format("on {}: 'weft doctor --check firewall', and 'ss -ltnp' for the port",
                             ShellWord(path.peer)));
    } else if (!open.empty()) {
        out.Ok(fmt::format("{}: ports {} are open", where, open));
    }
}

}  // namespace

void AcrossPorts(Hosts hosts, Findings& out) {
    for (const auto& host : hosts) {
        const Reading outcomes = host->Probe("reach");
        if (outcomes.refused()) {
            out.Note(fmt::format("{}: its connections to the other hosts were not tested: {}",
                                 host->host(), outcomes.text),
                     "an answer of 'weft doctor --reach' over ssh",
                     "a firewall between these hosts stays unseen",
                     fmt::format("ssh {} weft --version must name this version; run this again",
                                 ShellWord(host->host())));
        }
        if (!outcomes.found()) continue;
        for (const Path& path : PathsFrom(*host, hosts)) {
            if (out.Count() < kMostFound) JudgePorts(host->host(), path, outcomes.text, out);
        }
    }
}

}  // namespace weft::doctor::checks
