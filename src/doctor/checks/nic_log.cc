// What drivers of network cards say of themselves in the kernel's log.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/pci.h"

namespace weft::doctor::checks {
namespace {

constexpr std::array<std::string_view, 13> kDrivers = {
    "mlx4_core", "mlx4_en", "mlx5_core", "ice", "i40e",     "ixgbe", "bnxt_en",
    "cxgb4",     "qede",    "ionic",     "igc", "atlantic", "irdma"};

struct Hint {
    std::string_view part;
    Severity severity;
    const char* expected;
    const char* why;
    const char* fix;
};
constexpr std::array<Hint, 11> kHints = {{
    {"disabled performance optimized steering", Severity::kNote, "device managed flow steering",
     "a ConnectX-3 without its fast steering mode: rules are matched in the slow order, some us a "
     "packet under many rules; a pair of hosts with few connections hardly feels it",
     "echo 'options mlx4_core log_num_mgm_entry_size=-7' | sudo tee /etc/modprobe.d/mlx4.conf, "
     "rebuild the initramfs and boot; the price: VLANs don't work on the card in that mode"},
    {"Detected insufficient power on the PCIe slot", Severity::kNote,
     "PCIe slot advertised sufficient power",
     "the card may cap itself (13 Gb/s of 200 was seen), though many boards only fail to tell "
     "their power: believe 'weft net bw'",
     "boot with the cable plugged in, use a slot of 75 W, update BIOS and firmware"},
    {"transmit queue", Severity::kFail, "no time-outs of the transmit queue",
     "the card stopped sending for seconds; the driver reset it, and every connection stalled",
     "update the card's firmware and the kernel; reseat the card; swap the cable"},
    {"High Temperature", Severity::kWarn, "no heat events",
     "a hot card or module throttles and then drops its link", "more air over the card"},
    {"High temperature on", Severity::kWarn, "no heat events",
     "a hot card or module throttles and then drops its link", "more air over the card"},
    {"Entering Safe Mode", Severity::kWarn, "ice with its DDP package",
     "in Safe Mode an E810 has one queue and no RDMA: TCP at a fraction of the card",
     "install the package with intel/ice/ddp/ice.pkg (linux-firmware), rebuild the initramfs, "
     "boot"},
    {"Cable error", Severity::kWarn, "no cable errors",
     "a module that the card can't read runs at a lower speed or not at all",
     "a cable that the card's vendor lists; try the other end"},
    {"unsupported SFP", Severity::kWarn, "a module that the driver takes", "the port stays down",
     "options ixgbe allow_unsupported_sfp=1, or a listed module"},
    {"device's health compromised", Severity::kFail, "a healthy card",
     "the firmware of the card hangs or has failed", "power cycle; update the firmware"},
    {"Consider upgrading device FW", Severity::kNote, "current firmware",
     "features are off because of old firmware", "update the firmware (mstflint)"},
    {"Optimized steering validation failed", Severity::kWarn, "steering that works",
     "flows of RoCE may end in the wrong queue", "update the firmware (mstflint)"},
}};

// Without "[    9.162204] " or a syslog prefix: from the driver's name on.
std::string_view FromDriver(std::string_view line) {
    for (std::string_view driver : kDrivers) {
        for (size_t at = line.find(driver); at != std::string_view::npos;
             at = line.find(driver, at + 1)) {
            const bool begins = at == 0 || line[at - 1] == ' ' || line[at - 1] == '<';
            const size_t end = at + driver.size();
            if (begins && end < line.size() && (line[end] == ' ' || line[end] == ':')) {
                return line.substr(at);
            }
        }
    }
    return {};
}

// How the link of the card that the line is about is, where the limit is at its slot; kUnknown
// where that was not read.
LinkJudgement LimitAt(HostView& view, std::string_view line) {
    const std::vector<PciDevice> devices = PciDevices(view);
    const auto words = Words(line);
    const std::string_view limit = After(line, "link at ", " (");
    for (std::string_view word : words) {
        if (word.ends_with(':')) word.remove_suffix(1);
        const PciDevice* card = FindPci(devices, std::string(word));
        if (card == nullptr) continue;
        const PciDevice* slot = SlotOf(*card, devices);
        const bool at_slot = slot == nullptr || limit == slot->address || limit == card->address;
        return at_slot ? JudgeLink(*card, devices) : LinkJudgement::kBelow;
    }
    return LinkJudgement::kUnknown;
}

// "31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:02.5 (capable
// of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)"
void LookAtBandwidth(HostView& view, std::string_view line, const std::string& shown,
                     Findings& out) {
    const size_t at = line.find(" Gb/s available PCIe bandwidth, limited by");
    if (at == std::string_view::npos) return;
    const size_t begin = line.rfind(' ', at - 1);
    if (begin == std::string_view::npos) return;
    const auto have = Number(line.substr(begin + 1, at - begin - 1));
    const auto most = NumberAfter(line, "capable of ");
    if (!have || !most) return;
    switch (LimitAt(view, line)) {
        case LinkJudgement::kFull:
        case LinkJudgement::kByDesign:
        case LinkJudgement::kSlotUnknown:
            return out.Note(shown, "the link that the card could have",
                            "the slot has no more: pcie-link says what it costs");
        case LinkJudgement::kUnknown:
        case LinkJudgement::kBelow: break;
    }
    out.Warn(shown, "'available PCIe bandwidth' without 'limited by'",
             fmt::format("{} instead of {} between the card and memory", RateText(*have / 8),
                         RateText(*most / 8)),
             fmt::format("the limit is at {}: a wider slot, or the BIOS's setting of its lanes "
                         "(see pcie-link)",
                         After(line, "link at ", " (")));
}

// From the driver's name on, as the kernel wrote it.
std::string Shown(const LogLine& line) {
    const std::string_view from = FromDriver(line.raw);
    return std::string(from.empty() ? std::string_view(line.raw) : from);
}

// "NETDEV WATCHDOG: eth0 (igc): transmit queue 3 timed out", or "igc 0000:02:00.0 eth0: NETDEV
// WATCHDOG: CPU: 7: transmit queue 3 timed out".
struct Watchdog {
    std::string device, driver;
    std::string shown;  // from the driver or NETDEV on
};
Watchdog ParseWatchdog(const LogLine& line) {
    const auto words = Words(line.known);
    Watchdog found;
    const size_t raw_at = line.raw.find("NETDEV");
    found.shown = raw_at == std::string::npos ? line.raw : line.raw.substr(raw_at);
    const auto at = std::ranges::find(words, "NETDEV") - words.begin();
    const auto word = [&](ptrdiff_t i) {
        std::string_view text =
            i >= 0 && i < std::ssize(words) ? words[static_cast<size_t>(i)] : std::string_view();
        while (!text.empty() && (text.ends_with(':') || text.ends_with(')'))) text.remove_suffix(1);
        if (text.starts_with('(')) text.remove_prefix(1);
        return std::string(text);
    };
    if (!WatchdogNamesProcessor(line.known)) {
        found.device = word(at + 2);
        found.driver = word(at + 3);
        return found;
    }
    found.device = word(at - 1);
    for (ptrdiff_t i = at - 2; i >= 0 && i >= at - 3; --i) {  // a PCI address may stand between
        if (word(i).find(':') == std::string::npos) found.driver = word(i);
        if (!found.driver.empty()) break;
    }
    const size_t begin = found.driver.empty() ? line.raw.npos : line.raw.find(found.driver + " ");
    if (begin < raw_at) found.shown = line.raw.substr(begin);
    return found;
}

// Whether ranks would talk over it; true where that can't be told.
bool IsOfFabric(HostView& view, const Watchdog& found) {
    const std::vector<NetDevice> fabric = FabricDevices(view);
    if (std::ranges::find(fabric, found.device, &NetDevice::name) != fabric.end()) return true;
    constexpr std::array<std::string_view, 8> kFast = {
        "mlx4_core", "mlx4_en", "mlx5_core", "ice", "bnxt_en", "cxgb4", "qede", "ionic"};
    if (std::ranges::find(kFast, found.driver) != kFast.end()) return true;
    const bool card = std::ranges::find(kDrivers, found.driver) != kDrivers.end();
    return fabric.empty() && (card || found.driver.empty());
}

void LookAtWatchdog(HostView& view, const Watchdog& found, Findings& out) {
    const Hint& stalled = kHints[2];
    if (IsOfFabric(view, found)) {
        return out.Add(stalled.severity, found.shown, stalled.expected, stalled.why, stalled.fix);
    }
    out.Note(found.shown, stalled.expected,
             "the card stopped sending for seconds; ranks don't talk over it, but who is logged in "
             "by it may be cut off",
             stalled.fix);
}

void RunNicLog(HostView& view, Findings& out) {
    const Reading log = CommandLike(view, "dmesg");
    if (log.refused()) {
        return out.Note("dmesg: " + log.text, "the kernel's log",
                        "drivers tell there of narrow slots, cables and heat",
                        "sudo weft doctor, or sudo sysctl kernel.dmesg_restrict=0");
    }
    if (!log.found()) return;
    std::vector<std::string> said;  // each sentence once
    for (const LogLine& whole : KernelLogLines(log)) {
        std::string_view line = FromDriver(whole.known);
        const bool watchdog =
            Contains(whole.known, "NETDEV WATCHDOG") && Contains(whole.known, "timed out");
        const std::optional<Watchdog> stalled =
            watchdog ? std::optional(ParseWatchdog(whole)) : std::nullopt;
        if (stalled) line = stalled->device;
        if (line.empty() || said.size() > 64) continue;
        if (std::ranges::find(said, line) != said.end()) continue;
        const size_t before = said.size();
        if (stalled) {
            LookAtWatchdog(view, *stalled, out);
            said.emplace_back(line);
        } else if (Contains(line, "limited by")) {
            LookAtBandwidth(view, line, Shown(whole), out);
            said.emplace_back(line);
        }
        for (const Hint& hint : kHints) {
            if (said.size() > before || !Contains(line, hint.part)) continue;
            out.Add(hint.severity, Shown(whole), hint.expected, hint.why, hint.fix);
            said.emplace_back(line);
        }
    }
    if (out.empty()) out.Ok("the kernel's log has no complaint of a network driver");
}

}  // namespace

const Check kNicLog = {
    .name = "nic-log",
    .what =
        "Hints of network drivers in the kernel's log: PCIe bandwidth, steering mode, power, "
        "heat, cables, stalled queues.",
    .reads = "dmesg",
    .why = "The driver knows and says so, once, at boot, where nobody looks.",
    .run = RunNicLog,
};

}  // namespace weft::doctor::checks
