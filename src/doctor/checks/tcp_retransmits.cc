// TCP segments that had to be sent again.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

struct Segments {
    double sent = 0, again = 0;
};

// /proc/net/snmp: a line of names and a line of values for each protocol.
std::optional<Segments> ParseTcpRetransmits(std::string_view text) {
    std::vector<std::string_view> names;
    for (std::string_view line : Lines(text)) {
        if (!line.starts_with("Tcp:")) continue;
        const auto words = Words(line);
        if (names.empty()) {
            names = words;
            continue;
        }
        Segments segments;
        for (size_t i = 1; i < std::min(names.size(), words.size()); ++i) {
            const double value = Number(words[i]).value_or(0);
            if (names[i] == "OutSegs") segments.sent = value;
            if (names[i] == "RetransSegs") segments.again = value;
        }
        return segments;
    }
    return {};
}

void RunTcpRetransmits(HostView& view, Findings& out) {
    const Reading first = view.Read("proc/net/snmp");
    const auto before = first.found() ? ParseTcpRetransmits(first.text) : std::nullopt;
    if (!before || before->sent < 1) return;
    const Reading again = view.Later("proc/net/snmp");
    const auto after = again.found() ? ParseTcpRetransmits(again.text) : std::nullopt;
    const double share = before->again / before->sent;
    const double grown = after ? after->again - before->again : 0;
    const std::string read = fmt::format(
        "{:.0f} of {:.0f} segments sent again since boot ({:.2f} %), {:.0f} while it "
        "was watched",
        before->again, before->sent, 100 * share, grown);
    if (grown < 10 && (share < 0.01 || before->sent < 1e5)) return out.Ok(read);
    out.Note(read, "below 1 %",
             "each lost segment of a small message costs 200 ms: a thousand tokens' worth of "
             "waiting on a fast link",
             "look at nic-counters and nic-speed, on both ends; 'nstat -az TcpRetransSegs' shows "
             "it grow");
}

}  // namespace

const Check kTcpRetransmits = {
    .name = "tcp-retransmits",
    .what = "TCP segments sent again, since boot and while the other checks run.",
    .reads = "/proc/net/snmp, twice",
    .why = "A lost segment of a small message costs 200 ms.",
    .run = RunTcpRetransmits,
};

}  // namespace weft::doctor::checks
