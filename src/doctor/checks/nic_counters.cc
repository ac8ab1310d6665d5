// Compares two readings of network cards' counters.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

struct Counter {
    std::string_view name;
    Severity severity;
    double bearable;  // allowed in the second between the readings
    const char* why;
    const char* fix;
};
// Counter names of `ethtool -S` in mlx5, mlx4, ice, ixgbe, i40e, bnxt and igc.
constexpr std::array<Counter, 21> kCounters = {{
    {"rx_discards_phy", Severity::kWarn, 0,
     "packets dropped in the card, RDMA waits for its "
     "time-out (0.5 s and more) for each",
     "flow control on both ends and the switch: sudo "
     "ethtool -A DEV rx on tx on, or PFC for RoCE"},
    {"rx_out_of_buffer", Severity::kWarn, 0,
     "packets dropped because the host was slow to take "
     "them; TCP sends again after 0.2 s or more",
     "sudo ethtool -G DEV rx 8192"},
    {"rx_missed_errors", Severity::kWarn, 0,
     "packets dropped because the host was slow to take "
     "them",
     "sudo ethtool -G DEV rx 4096"},
    {"rx_no_buffer_count", Severity::kWarn, 0,
     "packets dropped because the host was slow to take "
     "them",
     "sudo ethtool -G DEV rx 4096"},
    {"out_of_sequence", Severity::kWarn, 0, "packets lost or reordered on the way",
     "a single "
     "path through the switch; flow control"},
    {"rx_crc_errors_phy", Severity::kWarn, 0, "damaged packets: cable or module",
     "another cable; "
     "clean the fibre"},
    {"rx_crc_errors", Severity::kWarn, 0, "damaged packets: cable or module", "another cable"},
    {"rx_symbol_err_phy", Severity::kWarn, 0, "damaged symbols: cable or module", "another cable"},
    {"link_down_events_phy", Severity::kWarn, 0, "the link went down while it was watched",
     "another cable"},
    {"tx_timeout", Severity::kWarn, 0, "the card stopped sending", "update its firmware"},
    // bnxt
    {"rx_fcs_err_frames", Severity::kWarn, 0, "damaged packets: cable or module", "another cable"},
    {"rx_total_discard_pkts", Severity::kWarn, 0, "packets dropped in the card",
     "sudo ethtool -G DEV rx 2047, and flow control on both ends and the switch"},
    {"rx_pfc_frames", Severity::kNote, 1000,
     "PFC holds this host back: congestion at the other end",
     "look at its PCIe link; ECN (DCQCN) on the switch"},
    {"tx_pfc_frames", Severity::kNote, 1000, "this host asks others to wait: it can't keep up",
     "look at its PCIe link (pcie-link) and cores"},
    // ice, i40e
    {"rx_crc_errors.nic", Severity::kWarn, 0, "damaged packets: cable or module", "another cable"},
    {"port.rx_crc_errors", Severity::kWarn, 0, "damaged packets: cable or module", "another cable"},
    {"rx_dropped.nic", Severity::kWarn, 0, "packets dropped in the card",
     "sudo ethtool -G DEV rx 8160, and flow control on both ends and the switch"},
    {"port.rx_dropped", Severity::kWarn, 0, "packets dropped in the card",
     "sudo ethtool -G DEV rx 4096, and flow control on both ends and the switch"},
    {"rx_pause_ctrl_phy", Severity::kNote, 1000, "the other end asks to wait: it can't keep up",
     "look at its PCIe link and its own counters"},
    {"rx_prio3_pause", Severity::kNote, 1000,
     "PFC holds this host back: congestion at the other "
     "end",
     "look at its PCIe link; ECN (DCQCN) on the switch"},
    {"tx_pause_ctrl_phy", Severity::kNote, 1000, "this host asks others to wait: it can't keep up",
     "look at its PCIe link (pcie-link) and cores"},
}};

double ValueOf(std::string_view statistics, std::string_view name) {
    for (std::string_view line : Lines(statistics)) {
        line = Trim(line);
        if (line.starts_with(name) && line.substr(name.size()).starts_with(": ")) {
            return Number(line.substr(name.size() + 2)).value_or(0);
        }
    }
    return 0;
}

// For a snapshot with one reading: more than one packet in ten thousand was lost.
bool LookAtTotal(const NetDevice& device, const Counter& counter, double count, double packets,
                 Findings& out) {
    if (counter.severity != Severity::kWarn || count < 100 || count < packets * 1e-4) return false;
    out.Warn(fmt::format("{}: {} is {:.0f} of {:.0f} packets", device.name, counter.name, count,
                         packets),
             "less than 1 in 10,000", counter.why, counter.fix);
    return true;
}

void LookNicCounters(HostView& view, const NetDevice& device, Findings& out) {
    const std::string words = "ethtool -S " + device.name;
    const Reading first = view.Command(words);
    if (!first.found()) return;
    const Reading second = view.Later(CommandPath(words));
    double packets = 1;
    for (const char* name :
         {"rx_packets", "rx_total_frames", "rx_good_frames", "rx_unicast.nic", "port.rx_unicast"}) {
        packets = std::max(packets, ValueOf(first.text, name));
    }
    bool good = true;
    for (const Counter& counter : kCounters) {
        const double now = ValueOf(first.text, counter.name);
        const double grown = second.found() ? ValueOf(second.text, counter.name) - now : 0;
        if (!second.found() && LookAtTotal(device, counter, now, packets, out)) good = false;
        if (!(grown > counter.bearable)) continue;
        good = false;
        std::string fix = counter.fix;
        if (const size_t at = fix.find("DEV"); at != std::string::npos) {
            fix.replace(at, 3, ShellWord(device.name));
        }
        out.Add(
            counter.severity,
            fmt::format("{}: {} grew by {} to {}", device.name, counter.name, grown, now + grown),
            "no growth while it was watched", counter.why, fix);
    }
    if (good) out.Ok(fmt::format("{}: no counter of lost or damaged packets grew", device.name));
}

}  // namespace

void RunNicCounters(HostView& view, Findings& out) {
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up && !device.wireless) LookNicCounters(view, device, out);
    }
}

}  // namespace weft::doctor::checks
