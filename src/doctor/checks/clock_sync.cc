// Whether the host's clock follows a time server.
#include "doctor/checks/checks.h"
#include "doctor/cures.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

void RunClockSync(HostView& view, Findings& out) {
    const Reading state = view.Command("timedatectl show --property=NTPSynchronized");
    if (!state.found()) return;
    const std::string read(Trim(state.text));
    if (read == "NTPSynchronized=yes") return out.Ok(read);
    if (read != "NTPSynchronized=no") return;
    out.Note(
        read, "NTPSynchronized=yes",
        "logs and timelines of several hosts don't line up, and certificates look expired "
        "once the clock is far off (deadlines are not concerned)",
        DistributionOf(view) == Distribution::kNixOs
            ? Configure("services.timesyncd.enable = true;")
            : "sudo timedatectl set-ntp true, or " + Install(view, {"chrony", "chrony", "chrony"}));
}

}  // namespace

const Check kClockSync = {
    .name = "clock-sync",
    .what = "The clock follows a time server.",
    .reads = "timedatectl show",
    .why = "Timelines of several hosts only line up if their clocks do.",
    .run = RunClockSync,
};

}  // namespace weft::doctor::checks
