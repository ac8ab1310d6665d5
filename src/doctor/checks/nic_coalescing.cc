// How long a card waits before it tells of a packet.
#include <fmt/format.h>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kMuchUs = 20;

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

}  // namespace

const Check kNicCoalescing = {
    .name = "nic-coalescing",
    .what = "Interrupt coalescing of network cards.",
    .reads = "ethtool -c",
    .why =
        "A card that collects packets before it interrupts is made for throughput; each TCP "
        "message of a token pays the wait.",
    .run = RunNicCoalescing,
};

}  // namespace weft::doctor::checks
