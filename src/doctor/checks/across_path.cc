// Whether packets of the full MTU really arrive, through every switch.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/network.h"
#include "doctor/path.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kSlowMs = 2;

void LookAcrossPath(HostView& view, const Path& path, Findings& out) {
    const Reading large = view.Command(PingCommand(path, path.mtu));
    const Reading small = view.Command(PingCommand(path, kSmallPacket));
    if (large.state == ReadState::kAbsent) return;
    const std::string where =
        fmt::format("{} to {} ({}) by {}", view.host(), path.address, path.peer, path.device);
    const std::string expected = fmt::format("packets of {} bytes arrive whole", path.mtu);
    if (Contains(large.text, "not found") || Contains(large.text, "not permitted")) {
        return out.Note(fmt::format("{}: ping can't run there", where), expected,
                        "whether large packets arrive was not tried",
                        Install(view, {"iputils-ping", "iputils", "iputils"}));
    }
    if (Contains(large.text, " 0% packet loss")) {
        const auto ms = NumberAfter(large.text, " time=");
        const std::string read = fmt::format("{}: {} bytes arrive{}", where, path.mtu,
                                             ms ? fmt::format(", {:g} ms both ways", *ms) : "");
        if (!ms || *ms < kSlowMs) return out.Ok(read);
        out.Note(read, fmt::format("below {:g} ms on a cable", kSlowMs),
                 "each of the two sums in a layer of a model waits so long for the other host",
                 "a direct cable or one switch between the hosts; look for power saving "
                 "(pcie-power, nic-coalescing) and a wireless hop");
        const std::vector<NetDevice> devices = NetDevices(view);
        const NetDevice* device = FindNetDevice(devices, path.device);
        const auto otherwise = device == nullptr ? std::nullopt : PortLink(*device);
        if (!otherwise) return;
        HostLink so = *otherwise;
        so.latency_s = *ms / 2 * 1e-3;
        return out.AskCost(LinkQuestion(view, so, *otherwise));
    }
    if (Contains(small.text, " 0% packet loss")) {
        return out.Fail(fmt::format("{}: 576 bytes arrive, {} do not", where, path.mtu), expected,
                        "something between the hosts (a switch without jumbo frames) drops large "
                        "packets: small messages work, transfers hang until their deadline",
                        "jumbo frames on the switch's ports, or on all hosts: " +
                            SetMtu(view, path.device, 1500));
    }
    out.Warn(fmt::format("{}: no answer", where), expected,
             "the peer can't be reached by this address, or does not answer ping",
             "cable, addresses, firewall: ping " + path.address);
}

void AcrossPath(Hosts hosts, Findings& out) {
    for (const auto& host : hosts) {
        for (const Path& path : PathsFrom(*host, hosts)) {
            if (out.Count() < 64) LookAcrossPath(*host, path, out);
        }
    }
}

}  // namespace

const Check kAcrossPath = {
    .name = "across-path",
    .what =
        "Packets of the full MTU arrive at the other hosts (by ssh with --hosts, by TCP with "
        "--workers and --cluster).",
    .reads = "ping -M do between the hosts; a TCP segment of the full size to a worker",
    .why = "A switch without jumbo frames drops what both ends agree on.",
    .across = AcrossPath,
};

}  // namespace weft::doctor::checks
