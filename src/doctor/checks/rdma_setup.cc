// Checks device files, libraries and MTU for RDMA; leaks and counters.
#include <fmt/format.h>

#include <array>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"
#include "doctor/unreadable.h"

namespace weft::doctor::checks {

// ---- rdma-access: Device files through which a program uses RDMA.

void RunRdmaAccess(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const std::vector<std::string> devices = Numbered(view, "dev/infiniband", "uverbs");
    const char* expected = "/dev/infiniband/uverbs*, readable and writable";
    if (devices.empty() && !view.Complete() && view.List("dev").empty()) return;
    for (const std::string& card : view.List("sys/class/infiniband")) {
        const Reading proof = view.Probe("register_memory/" + card);
        if (devices.empty() && proof.text.starts_with("registered")) {
            return out.Ok(card + ": " + std::string(Trim(proof.text)), expected);
        }
    }
    if (devices.empty() && HasTag(view, "container")) {
        return out.Note("the host's RDMA device is not in this container", expected,
                        "Weft uses TCP here",
                        "--device /dev/infiniband (LXC: a dev0 entry for it)");
    }
    if (devices.empty()) {
        out.Fail("no /dev/infiniband/uverbs*, though the kernel has an RDMA device", expected,
                 "programs can't reach the card: Weft uses TCP",
                 "sudo modprobe -a ib_uverbs rdma_ucm (in a container: --device "
                 "/dev/infiniband)");
        return out.AskCost(TcpQuestion(view));
    }
    for (const std::string& device : devices) {
        const Reading access = view.Probe("access/dev/infiniband/" + device);
        if (!access.found()) continue;
        const std::string read = fmt::format("/dev/infiniband/{}: {}", device, Trim(access.text));
        if (Trim(access.text) != "rw") {
            out.Fail(read, expected, "this user can't use the card: Weft uses TCP",
                     Install(view, kRdmaCore) +
                         " (its udev rules give 0666), or sudo usermod -aG rdma $USER and log in "
                         "again");
            return out.AskCost(TcpQuestion(view));
        }
    }
    out.Ok("/dev/infiniband: " + Joined(devices), expected);
}

// ---- rdma-leaks: Queue pairs of ended programs, or too many of them.

namespace {

constexpr double kMany = 1000;

}  // namespace

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

// ---- rdma-library: The user-space part of RDMA.

namespace {

constexpr Version kOld = {{30, 0, 0}};

// "44.0-2", "2307mlnx47-1", "1:44.0-2".
std::optional<Version> PackageVersion(std::string_view text) {
    text = Trim(text);
    if (text.starts_with("rdma-core ")) text.remove_prefix(10);  // from pacman
    if (const size_t colon = text.find(':'); colon < 3) text = text.substr(colon + 1);
    return ParseVersion(text);
}

struct Package {
    std::string version;
    bool missing = false;  // reported by the distribution's own tool
};

// Asks the distribution's own tool; another installed tool does not know the packages.
Package ReadPackage(HostView& view) {
    const Distribution distribution = DistributionOf(view);
    const bool any = distribution == Distribution::kUnknown;
    const auto ask = [&](const char* words, bool own, Package& package) {
        if (!own || !package.version.empty()) return;
        const Reading reading = view.Command(words);
        // rpm reports it on standard output, in the user's language.
        const bool absent = reading.found() && !PackageVersion(reading.text) &&
                            Contains(reading.text, "libibverbs");
        // A tool that could not run gives no answer.
        const bool denied = reading.refused() && WhatIsSaid(reading.text) != Said::kOutput;
        package.missing = package.missing || absent || (reading.refused() && !denied);
        if (reading.found() && !absent) package.version = Trim(reading.text);
    };
    Package package;
    using enum Distribution;
    ask("dpkg-query -W -f=${Version} ibverbs-providers", any || distribution == kDebian, package);
    ask("rpm -q --qf=%{VERSION} libibverbs",
        any || distribution == kFedora || distribution == kYum || distribution == kOstree ||
            distribution == kSuse,
        package);
    ask("pacman -Q rdma-core", distribution == kArch, package);
    return package;
}

}  // namespace

void RunRdmaLibrary(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const auto [text, missing] = ReadPackage(view);
    if (text.empty()) {
        if (!missing) return;
        return out.Warn("no package ibverbs-providers (libibverbs)", "rdma-core 30 or newer",
                        "without the card's provider no program finds it: Weft uses TCP",
                        Install(view, kRdmaCore));
    }
    const auto version = PackageVersion(text);
    const std::string read = text.starts_with("rdma-core ") ? text : "rdma-core " + text;
    if (!version) return;
    if (*version >= kOld) return out.Ok(read, "30 or newer");
    out.Note(read, "30 or newer",
             "older providers don't know newer cards, and lack relaxed ordering (up to half of the "
             "bandwidth on AMD hosts)",
             "update the distribution's rdma-core");
}

// ---- rdma-mtu: Packet size of RoCE, set by the interface's MTU.

namespace {

constexpr int kMostMtu = 4096;
constexpr int kBetween = 20;  // preamble and gap between Ethernet packets
constexpr int kHeaders = 70;  // of RoCE v2 in an Ethernet packet: IP, UDP, BTH, RETH, checksums

int RdmaMtu(int mtu) {
    for (int size : {kMostMtu, 2048, 1024, 512}) {
        if (mtu >= size + kHeaders) return size;
    }
    return 256;
}

// Data share of the wire with packets of this size.
double DataShare(int size) {
    return static_cast<double>(size) / (size + kHeaders + kBetween);
}

void AskSmallPackets(HostView& view, const RdmaPort& port, int size, Findings& out) {
    const std::optional<HostLink> otherwise = PortLink(port);
    if (!otherwise) return;
    HostLink so = *otherwise;
    so.share = DataShare(size) / DataShare(kMostMtu);
    out.AskCost(LinkQuestion(view, so, *otherwise));
}

}  // namespace

void RunRdmaMtu(HostView& view, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            const NetDevice* device = FindNetDevice(devices, name);
            if (device == nullptr || device->mtu == 0) continue;
            const int size = RdmaMtu(device->mtu);
            const std::string read = fmt::format("{}: {} has MTU {}, so RDMA packets of {} bytes",
                                                 port.Text(), name, device->mtu, size);
            if (size == 4096) {
                out.Ok(read, "MTU 4200 or more");
                continue;
            }
            out.Note(read, "MTU 4200 or more (9000 on both ends and the switch)",
                     fmt::format("8 KB are {} packets instead of 2; large transfers reach {:.0f} % "
                                 "of the wire instead of {:.0f} %",
                                 8192 / size, 100 * DataShare(size), 100 * DataShare(kMostMtu)),
                     SetMtu(view, name, 9000) + ", on both ends");
            AskSmallPackets(view, port, size, out);
        }
    }
}

// ---- rdma-counters: Error counters of RDMA ports, read twice.

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

// Enough since the port came up to matter, even if none was added in the last second.
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

}  // namespace

void RunRdmaCounters(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.path.empty() && port.active()) LookRdmaCounters(view, port, out);
    }
}

}  // namespace weft::doctor::checks
