// Differences between the clocks of hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "doctor/checks/checks.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// The host's clock minus that of the machine that asked, in seconds: between least and most.
struct Offset {
    std::string host;
    double least = 0, most = 0;
    double Distance() const {  // from zero, for sure
        return least > 0 ? least : most < 0 ? -most : 0;
    }
};

void AcrossClock(Hosts hosts, Findings& out) {
    bool any = false;
    for (const auto& host : hosts) {
        const auto clock = Number(host->Probe("clock").text);
        const std::string asked = host->Probe("clock_asked").text;
        const auto words = Words(asked);
        if (!clock || words.size() != 2) continue;
        const auto before = Number(words[0]), after = Number(words[1]);
        if (!before || !after || *after < *before) continue;
        any = true;
        const Offset offset{host->host(), (*clock - *after) * 1e-9, (*clock - *before) * 1e-9};
        const std::string read = fmt::format("{}: clock {:+.3f} to {:+.3f} s from here",
                                             offset.host, offset.least, offset.most);
        if (offset.Distance() < 0.1) {
            out.Ok(read);
        } else {
            const char* why =
                "logs and timelines of the hosts don't line up; from some minutes on "
                "certificates and tokens look expired";
            const char* fix =
                "sudo timedatectl set-ntp true on all hosts (or chrony, one of them "
                "the server of the others)";
            if (offset.Distance() < 5) {
                out.Note(read, "within 0.1 s", why, fix);
            } else {
                out.Warn(read, "within 0.1 s", why, fix);
            }
        }
    }
    if (!any) return;
}

}  // namespace

const Check kAcrossClock = {
    .name = "across-clock",
    .what = "Differences between the clocks of hosts (with --hosts).",
    .reads = "date, over ssh, between two readings of this machine's clock",
    .why = "Timelines of several hosts only line up if their clocks do.",
    .across = AcrossClock,
};

}  // namespace weft::doctor::checks
