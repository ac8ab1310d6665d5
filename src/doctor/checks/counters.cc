// Checks counters that the doctor reads twice: of network cards, RDMA ports, TCP and processors.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

struct Counter {
    std::string_view names;  // the counter's names in drivers, separated by blanks
    Severity severity;
    double allowed;  // growth between the two readings that is not a fault
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

// This many RDMA errors since the port came up are reported even if the counter is constant.
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

// Reports a counter that grew by more than it may. Returns false if it did not grow by more.
bool CheckGrowth(const std::string& device, std::string_view name, const Counter& counter,
                 double first, double now, Findings& out) {
    if (!(now - first > counter.allowed)) return false;
    ReportAs<found::kCounterGrew>(counter.severity, out, device, name, now - first, now,
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
                CheckGrowth(device.name, name, counter, count, ValueOf(second.text, name), out);
            } else if (counter.severity == kWarn && count >= 100 && count >= packets * 1e-4) {
                Report<found::kCounterShare>(out, device.name, name, count, packets, counter.why,
                                             FixOf(counter, device.name));
            }
        }
    }
    if (out.Count() > before) return;
    ReportOk(out, "{}: {}", device.name,
             second.found() ? "no counter of lost or damaged packets grew"
                            : "few lost or damaged packets so far; counted once");
}

void CheckRdmaCounters(HostView& view, const RdmaPort& port, Findings& out) {
    bool any = false, twice = false;
    const size_t before = out.Count();
    for (const Counter& counter : kRdmaCounters) {
        for (std::string_view name : Words(counter.names)) {
            const std::string path = fmt::format("{}/{}", port.path, name);
            const auto first = view.Number(path);
            if (!first) continue;
            any = true;
            const Reading again = view.Later(path);
            twice = twice || again.found();
            const double now = again.found() ? Number(again.text).value_or(*first) : *first;
            if (CheckGrowth(port.Text(), name, counter, *first, now, out)) continue;
            if (now < kManyEver || counter.severity != kWarn) continue;
            ReportAs<found::kCounterTotal>(again.found() ? kNote : kWarn, out, port.Text(), name,
                                           now, again.found() ? ", none of it now" : "",
                                           counter.why, counter.fix);
        }
    }
    if (!any || out.Count() > before) return;
    ReportOk(out, "{}: {}", port.Text(),
             twice ? "no error counter grew" : "few errors so far; counted once");
}

// TCP's value `name` in /proc/net/snmp, which has a line of names and a line of values for each
// protocol.
std::optional<double> TcpValue(std::string_view text, std::string_view name) {
    std::vector<std::string_view> names;
    for (const auto& words : WordLines(text)) {
        if (words[0] != "Tcp:") continue;
        const auto at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
        if (!names.empty()) {
            return at < std::min(names.size(), words.size()) ? Number(words[at]).value_or(0) : 0;
        }
        names = words;
    }
    return {};
}

// The counter at `path` now; unread: `first`.
double Again(HostView& view, const std::string& path, double first) {
    const Reading again = view.Later(path);
    return again.found() ? Number(again.text).value_or(first) : first;
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
    const double sent = TcpValue(first.text, "OutSegs").value_or(0);
    if (sent < 1) return;
    const double again = TcpValue(first.text, "RetransSegs").value_or(0);
    const Reading second = view.Later("proc/net/snmp");
    const double grown = TcpValue(second.text, "RetransSegs").value_or(again) - again;
    const double share = again / sent;
    ReportUnless<found::kTcpRetransmits>(grown < 10 && (share < 0.01 || sent < 1e5), out, again,
                                         sent, 100 * share, grown);
}

void RunCpuThrottling(HostView& view, Findings& out) {
    const std::string path = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
    const auto first = view.Number(path);
    if (!first) return;
    const double now = Again(view, path, *first);
    if (now > *first) return Report<found::kCpuThrottled>(out, now, now - *first);
    ReportOk(out, "the package was throttled {} times since boot", now);
}

}  // namespace weft::doctor::checks
