// Whether the host's clock follows a time server.
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// "NTPSynchronized=yes"; of a snapshot made by hand by what timedatectl prints for people.
std::string SyncState(HostView& view) {
    const Reading state = view.Command("timedatectl show --property=NTPSynchronized");
    if (state.found()) return std::string(Trim(std::string_view(state.text)));
    if (view.Complete()) return {};
    for (const char* words : {"timedatectl", "timedatectl status"}) {
        const std::string text = view.Command(words).text;
        for (const char* key : {"System clock synchronized:", "NTP synchronized:"}) {
            const std::string_view value = After(text, key);
            if (!value.empty()) return "NTPSynchronized=" + std::string(value);
        }
    }
    return {};
}

void RunClockSync(HostView& view, Findings& out) {
    const std::string read = SyncState(view);
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
