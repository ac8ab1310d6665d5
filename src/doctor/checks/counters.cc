// Checks counters that the doctor reads twice: of network cards, RDMA ports, TCP and processors.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

struct Counter {
    std::string_view names;  // of drivers, separated by blanks
    Severity severity;
    double allowed;  // between the readings
    const char* why;
    const char* fix;  // {0}: the interface
};
#define COUNTER(names, severity, allowed, why, fix) {names, Severity::severity, allowed, why, fix},
constexpr Counter kNicCounters[] = {
#define NIC_COUNTERS
#include "doctor/checks/counters.inc"
#undef NIC_COUNTERS
};
constexpr Counter kRdmaCounters[] = {
#define RDMA_COUNTERS
#include "doctor/checks/counters.inc"
#undef RDMA_COUNTERS
};
#undef COUNTER

// RDMA errors since the port came up that matter even if none was added between the readings.
constexpr double kManyEver = 10000;

double ValueOf(std::string_view statistics, std::string_view name) {
    for (std::string_view line : Lines(statistics)) {
        line = Trim(line);
        if (line.starts_with(name) && line.substr(name.size()).starts_with(": ")) {
            return Number(line.substr(name.size() + 2)).value_or(0);
        }
    }
    return 0;
}

std::string FixOf(const Counter& counter, const std::string& device) {
    const std::string name = ShellWord(device);
    return fmt::vformat(counter.fix, fmt::make_format_args(name));
}

// False: the counter grew by no more than it may.
bool CheckGrowth(HostView& view, const std::string& device, std::string_view name,
                 const Counter& counter, double first, double now, Findings& out) {
    if (!(now - first > counter.allowed)) return false;
    ReportAs<found::kCounterGrew>(counter.severity, view, out, device, name, now - first, now,
                                  counter.why, FixOf(counter, device));
    return true;
}

void CheckNicCounters(HostView& view, const NetDevice& device, Findings& out) {
    const std::string command = "ethtool -S " + device.name;
    const Reading first = view.Command(command);
    if (!first.found()) return;
    const Reading second = view.Later(CommandPath(command));
    double packets = 1;
    for (const char* name :
         {"rx_packets", "rx_total_frames", "rx_good_frames", "rx_unicast.nic", "port.rx_unicast"}) {
        packets = std::max(packets, ValueOf(first.text, name));
    }
    const size_t before = out.Count();
    for (const Counter& counter : kNicCounters) {
        for (std::string_view name : Words(counter.names)) {
            const double count = ValueOf(first.text, name);
            if (second.found()) {
                CheckGrowth(view, device.name, name, counter, count, ValueOf(second.text, name),
                            out);
            } else if (counter.severity == Severity::kWarn && count >= 100 &&
                       count >= packets * 1e-4) {
                Report<found::kCounterShare>(view, out, device.name, name, count, packets,
                                             counter.why, FixOf(counter, device.name));
            }
        }
    }
    if (out.Count() == before)
        ReportOk(out, "{}: no counter of lost or damaged packets grew", device.name);
}

void CheckRdmaCounters(HostView& view, const RdmaPort& port, Findings& out) {
    bool any = false;
    const size_t before = out.Count();
    for (const Counter& counter : kRdmaCounters) {
        for (std::string_view name : Words(counter.names)) {
            const std::string path = fmt::format("{}/{}", port.path, name);
            const auto first = Number(view.Text(path));
            if (!first) continue;
            any = true;
            const Reading again = view.Later(path);
            const double now = again.found() ? Number(again.text).value_or(*first) : *first;
            if (CheckGrowth(view, port.Text(), name, counter, *first, now, out)) continue;
            if (now < kManyEver || counter.severity != Severity::kWarn) continue;
            ReportAs<found::kCounterTotal>(
                again.found() ? Severity::kNote : Severity::kWarn, view, out, port.Text(), name,
                now, again.found() ? ", none of it now" : "", counter.why, counter.fix);
        }
    }
    if (any && out.Count() == before) ReportOk(out, "{}: no error counter grew", port.Text());
}

struct Segments {
    double sent = 0, again = 0;
};

// /proc/net/snmp: a line of names and a line of values for each protocol.
std::optional<Segments> ParseSegments(std::string_view text) {
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

void RunNicCounters(HostView& view, Findings& out) {
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up && !device.wireless) CheckNicCounters(view, device, out);
    }
}

void RunRdmaCounters(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.path.empty() && port.active()) CheckRdmaCounters(view, port, out);
    }
}

void RunTcpRetransmits(HostView& view, Findings& out) {
    const Reading first = view.Read("proc/net/snmp");
    const auto before = first.found() ? ParseSegments(first.text) : std::nullopt;
    if (!before || before->sent < 1) return;
    const Reading again = view.Later("proc/net/snmp");
    const auto after = again.found() ? ParseSegments(again.text) : std::nullopt;
    const double share = before->again / before->sent;
    const double grown = after ? after->again - before->again : 0;
    const bool few = grown < 10 && (share < 0.01 || before->sent < 1e5);
    ReportAs<found::kTcpRetransmits>(few ? Severity::kOk : Severity::kNote, view, out,
                                     before->again, before->sent, 100 * share, grown);
}

void RunCpuThrottling(HostView& view, Findings& out) {
    constexpr const char* kPath =
        "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
    const auto first = Number(view.Text(kPath));
    if (!first) return;
    const Reading again = view.Later(kPath);
    const double now = again.found() ? Number(again.text).value_or(*first) : *first;
    if (now > *first) return Report<found::kCpuThrottled>(view, out, now, now - *first);
    ReportOk(out, "the package was throttled {} times since boot", now);
}

}  // namespace weft::doctor::checks
