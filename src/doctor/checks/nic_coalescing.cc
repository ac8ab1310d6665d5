// How long a card waits before it tells of a packet.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
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
        out.Note(read, expected,
                 fmt::format("TCP messages lie up to {:g} us in the card: at two syncs a layer and "
                             "32 layers {:.1f} ms a token (RDMA does not wait)",
                             *wait, *wait * 64 * 1e-3),
                 fmt::format("sudo ethtool -C {} adaptive-rx off rx-usecs 0", Quoted(device.name)));
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
