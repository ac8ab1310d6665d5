// Error counters of RDMA ports, read twice.
#include <fmt/format.h>

#include <array>

#include "doctor/checks/checks.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

struct RdmaCounter {
    const char* file;
    Severity severity;
    const char* why;
    const char* fix;
};
constexpr const char* kFlow =
    "flow control on both ends and the switch (rx on tx on with ethtool -A, or PFC), and look at "
    "pcie-link";
constexpr std::array<RdmaCounter, 11> kRdmaCounters = {{
    {"hw_counters/out_of_sequence", Severity::kWarn,
     "packets were lost on the way: each costs a round of sending again, 10 us to 0.5 s", kFlow},
    {"hw_counters/packet_seq_err", Severity::kWarn,
     "the other end asked for packets again: they were lost on the way", kFlow},
    {"hw_counters/local_ack_timeout_err", Severity::kWarn,
     "answers did not come in time: 0.07 to 4 s of silence each", kFlow},
    {"hw_counters/rnr_nak_retry_err", Severity::kWarn,
     "the other end was not ready to receive: it waits before it sends again",
     "update Weft on all hosts to the same version"},
    {"hw_counters/np_cnp_sent", Severity::kNote, "congestion was marked (ECN): senders slow down",
     "more than one sender to one port? spread "
     "them"},
    {"counters/symbol_error", Severity::kWarn, "damaged symbols: cable or module",
     "another cable; clean the fibre"},
    {"counters/port_rcv_errors", Severity::kWarn, "damaged packets: cable or module",
     "another cable; clean the fibre"},
    {"counters/link_downed", Severity::kWarn, "the link went down while it was watched",
     "another cable"},
    {"counters/link_error_recovery", Severity::kWarn, "the link had to train again",
     "another cable"},
    {"counters/port_xmit_discards", Severity::kWarn, "packets dropped before they were sent",
     kFlow},
    {"counters/VL15_dropped", Severity::kNote, "packets of the subnet manager were dropped",
     "exactly one subnet manager"},
}};

// Enough of them since the port came up to matter even if none came in the last second.
constexpr double kManyEver = 10000;

void LookRdmaCounters(HostView& view, const RdmaPort& port, Findings& out) {
    bool any = false, good = true;
    for (const RdmaCounter& counter : kRdmaCounters) {
        const std::string path = port.path + "/" + counter.file;
        const auto first = Number(view.Text(path));
        if (!first) continue;
        any = true;
        const Reading again = view.Later(path);
        const double now = again.found() ? Number(again.text).value_or(*first) : *first;
        const char* name = counter.file;
        if (now > *first) {
            good = false;
            out.Add(counter.severity,
                    fmt::format("{}: {} grew by {} to {}", port.Text(), name, now - *first, now),
                    "no growth while it was watched", counter.why, counter.fix);
        } else if (now >= kManyEver && counter.severity == Severity::kWarn) {
            good = false;
            out.Add(again.found() ? Severity::kNote : Severity::kWarn,
                    fmt::format("{}: {} is {}{}", port.Text(), name, now,
                                again.found() ? ", none of it now" : ""),
                    "0", counter.why, counter.fix);
        }
    }
    if (any && good) out.Ok(fmt::format("{}: no error counter grew", port.Text()));
}

void RunRdmaCounters(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.path.empty() && port.active()) LookRdmaCounters(view, port, out);
    }
}

}  // namespace

const Check kRdmaCounters = {
    .name = "rdma-counters",
    .what =
        "Retransmits, time-outs, damaged packets and congestion of RDMA ports, counted while "
        "the other checks and the measurements run.",
    .reads = "/sys/class/infiniband/*/ports/*/{counters,hw_counters}, twice",
    .why = "RDMA expects a network that loses nothing: one lost packet costs up to 4 s.",
    .run = RunRdmaCounters,
};

}  // namespace weft::doctor::checks
