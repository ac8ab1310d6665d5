// What drivers of network cards say of themselves in the kernel's log.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/checks/checks.h"
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
void LookAtBandwidth(HostView& view, std::string_view line, Findings& out) {
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
            return out.Note(std::string(line), "the link that the card could have",
                            "the slot has no more: pcie-link says what it costs");
        case LinkJudgement::kUnknown:
        case LinkJudgement::kBelow: break;
    }
    out.Warn(std::string(line), "'available PCIe bandwidth' without 'limited by'",
             fmt::format("{} instead of {} between the card and memory", RateText(*have / 8),
                         RateText(*most / 8)),
             fmt::format("the limit is at {}: a wider slot, or the BIOS's setting of its lanes "
                         "(see pcie-link)",
                         After(line, "link at ", " (")));
}

void Run(HostView& view, Findings& out) {
    const Reading log = CommandLike(view, "dmesg");
    if (log.refused()) {
        return out.Note("dmesg: " + log.text, "the kernel's log",
                        "drivers tell there of narrow slots, cables and heat",
                        "sudo weft doctor, or sudo sysctl kernel.dmesg_restrict=0");
    }
    if (!log.found()) return;
    std::vector<std::string_view> said;  // each sentence once
    const std::vector<std::string> lines = KernelLogLines(log);
    for (std::string_view line : lines) {
        if (Contains(line, "NETDEV WATCHDOG") && Contains(line, "timed out")) {
            line = line.substr(line.find("NETDEV"));
        } else if (line = FromDriver(line); line.empty()) {
            continue;
        }
        if (std::ranges::find(said, line) != said.end() || said.size() > 64) continue;
        const size_t before = said.size();
        if (Contains(line, "limited by")) {
            LookAtBandwidth(view, line, out);
            said.push_back(line);
        }
        for (const Hint& hint : kHints) {
            if (said.size() > before || !Contains(line, hint.part)) continue;
            out.Add(hint.severity, std::string(line), hint.expected, hint.why, hint.fix);
            said.push_back(line);
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
    .run = Run,
};

}  // namespace weft::doctor::checks
