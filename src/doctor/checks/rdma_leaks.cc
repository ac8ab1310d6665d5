// Queue pairs of programs that ended, or far too many.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kMany = 1000;

// "0: mlx5_0: pd 3 cq 5 qp 2 cm_id 0 mr 0 ctx 0 srq 2"
void RunRdmaLeaks(HostView& view, Findings& out) {
    const Reading summary = view.Command("rdma resource show");
    if (!summary.found()) return;
    for (std::string_view line : Lines(summary.text)) {
        const std::string_view device = After(line, ": ", ":");
        const auto pairs = NumberAfter(line, " qp ");
        const auto regions = NumberAfter(line, " mr ");
        if (device.empty() || !pairs) continue;
        const std::string read = fmt::format("{}: {} queue pairs, {} memory regions", device,
                                             *pairs, regions.value_or(0));
        if (*pairs < kMany && regions.value_or(0) < kMany) {
            out.Ok(read);
            continue;
        }
        out.Warn(read, fmt::format("fewer than {}", kMany),
                 "what a program left behind stays locked in memory, and the card's cache of "
                 "connections thrashes: 1 to 2 us more a message",
                 "rdma resource show qp (names the processes); end them, or reload the driver");
    }
}

}  // namespace

const Check kRdmaLeaks = {
    .name = "rdma-leaks",
    .what = "Queue pairs and memory regions that were left behind.",
    .reads = "rdma resource show",
    .why = "They keep memory locked, and crowd the card's cache.",
    .run = RunRdmaLeaks,
};

}  // namespace weft::doctor::checks
