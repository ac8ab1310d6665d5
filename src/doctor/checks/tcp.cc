// Checks TCP settings, retransmitted segments, and interrupt coalescing.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {

// ---- tcp-settings: TCP settings that limit fast links.

void RunTcpSettings(HostView& view, Findings& out) {
    // minimum, default, maximum
    const std::string window = view.Text("proc/sys/net/ipv4/tcp_rmem");
    const auto words = Words(window);
    if (words.size() != 3) return;
    const auto most = Number(words[2]);
    double fastest = 0;
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up) fastest = std::max(fastest, device.megabits);
    }
    const std::string read =
        fmt::format("net.ipv4.tcp_rmem = {} {} {}", words[0], words[1], words[2]);
    // Bytes in flight in 0.5 ms, a round trip through a busy host.
    const double needed = fastest * 1e6 / 8 * 0.5e-3;
    if (most && *most < needed) {
        out.Note(read, fmt::format("at least {:.0f} bytes as the most", needed),
                 fmt::format("one connection gets {:.1f} GB/s of the card's {:.1f} when a round "
                             "trip takes 0.5 ms",
                             *most / 0.5e-3 * 1e-9, fastest / 8000),
                 SetSysctl(view,
                           "net.core.rmem_max=67108864\nnet.core.wmem_max=67108864\n"
                           "net.ipv4.tcp_rmem=4096 131072 67108864\n"
                           "net.ipv4.tcp_wmem=4096 65536 67108864"));
    }
    if (view.Text("proc/sys/net/ipv4/tcp_timestamps") == "0" &&
        view.Text("proc/sys/net/ipv4/tcp_sack") == "0") {
        out.Note("net.ipv4.tcp_sack = 0", "1",
                 "a lost packet makes TCP send everything after it again",
                 SetSysctl(view, "net.ipv4.tcp_sack=1"));
    }
    if (out.empty()) out.Ok(read);
}

// ---- tcp-retransmits: Retransmitted TCP segments.

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

}  // namespace

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

// ---- nic-coalescing: Delay of a card's interrupts.

namespace {

constexpr double kMuchUs = 20;

}  // namespace

void RunNicCoalescing(HostView& view, Findings& out) {
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.physical || !device.up || device.wireless) continue;
        const Reading settings = view.Command("ethtool -c " + device.name);
        if (!settings.found()) continue;
        const auto wait = NumberAfter(settings.text, "\nrx-usecs:");
        if (!wait) continue;
        const bool adaptive = After(settings.text, "Adaptive RX:").starts_with("on");
        const std::string read =
            fmt::format("{}: rx-usecs {:g}{}", device.name, *wait, adaptive ? ", adaptive" : "");
        const std::string expected = fmt::format("at most {:g}, or adaptive", kMuchUs);
        if (*wait <= kMuchUs || adaptive) {
            out.Ok(read, expected);
            continue;
        }
        out.Note(
            read, expected,
            fmt::format("each TCP message lies up to {:g} us in the card (RDMA does not wait)",
                        *wait),
            fmt::format("sudo ethtool -C {} adaptive-rx off rx-usecs 0", ShellWord(device.name)));
        if (const auto otherwise = PortLink(device)) {
            HostLink so = *otherwise;
            so.waits_s = *wait * 1e-6;
            out.AskCost(LinkQuestion(view, so, *otherwise));
        }
    }
}

}  // namespace weft::doctor::checks
