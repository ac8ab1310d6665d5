// Reports network drivers' messages in the kernel log.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/log_rules.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

constexpr size_t kMostFindings = 32;
constexpr const char* kStalledExpected = "no time-outs of the transmit queue";

// The line from the driver's name on, as the kernel wrote it.
std::string Shown(const LogLine& line) {
    const std::string_view driver = NetworkDriverIn(line.raw);
    const size_t at = driver.empty() ? line.raw.npos : line.raw.find(driver);
    if (at == line.raw.npos) return line.raw;
    return line.raw.substr(at > 0 && line.raw[at - 1] == '<' ? at - 1 : at);
}

// "mlx5_core 0000:01:00.0 enp1s0f0np0: ..." -> "enp1s0f0np0"; "": no interface.
std::string InterfaceIn(std::string_view line) {
    const auto words = Words(line);
    for (size_t i = 1; i < words.size(); ++i) {
        std::string_view word = words[i];
        // Realtek's own drivers print no address: "r8127: enp3s0: link down".
        const bool own = words[i - 1].starts_with("r812") && words[i - 1].ends_with(':');
        if (!own && (PciAddressIn(words[i - 1]).empty() || words[i - 1].ends_with(':'))) continue;
        if (!word.ends_with(':')) continue;
        word.remove_suffix(1);
        return std::string(word);
    }
    return "";
}

// Judgement of the card's link if the line's limit is at its slot; kUnknown: the link was not read.
LinkJudgement LimitAt(HostView& view, std::string_view line) {
    const std::vector<PciDevice> devices = PciDevices(view);
    const std::string_view limit = After(line, "link at ", " (");
    for (std::string_view word : Words(line)) {
        if (word.ends_with(':')) word.remove_suffix(1);
        const PciDevice* card = FindPci(devices, std::string(word));
        if (card == nullptr) continue;
        const PciDevice* slot = SlotOf(*card, devices);
        const bool at_slot = slot == nullptr || limit == slot->address || limit == card->address;
        return at_slot ? JudgeLink(*card, devices) : LinkJudgement::kBelow;
    }
    return LinkJudgement::kUnknown;
}

// Four lanes at 8 GT/s or more, or eight lanes: a common small slot, not a badly trained link.
bool IsOfSmallSlots(std::string_view line) {
    const std::string_view limit = After(line, "limited by ", "(");
    return LeadingNumber(limit).value_or(0) >= 8 && NumberAfter(limit, " x").value_or(0) >= 4;
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
            if (IsOfSmallSlots(line)) {
                return out.Note(shown, "the link that the card could have",
                                "as M.2 and Oculink have it by design; in a wider slot lanes are "
                                "lost",
                                "sudo lspci -vv tells (LnkCap of the bridge above the card)");
            }
            break;
        case LinkJudgement::kBelow: break;
    }
    out.Warn(shown, "'available PCIe bandwidth' without 'limited by'",
             fmt::format("{} instead of {} between the card and memory", RateText(*have / 8),
                         RateText(*most / 8)),
             fmt::format("the limit is at {}: a wider slot, or the BIOS's setting of its lanes "
                         "(see pcie-link)",
                         After(line, "link at ", " (")));
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
    for (ptrdiff_t i = at - 2; i >= 0 && i >= at - 3; --i) {  // a PCI address may come in between
        if (word(i).find(':') == std::string::npos) found.driver = word(i);
        if (!found.driver.empty()) break;
    }
    const size_t begin = found.driver.empty() ? line.raw.npos : line.raw.find(found.driver + " ");
    if (begin < raw_at) found.shown = line.raw.substr(begin);
    return found;
}

bool IsFastDriver(std::string_view driver) {
    constexpr std::array<std::string_view, 9> kFast = {
        "mlx4_core", "mlx4_en", "mlx5_core", "ice", "bnxt_en", "cxgb4", "qede", "ionic", "cxi_ss1"};
    return std::ranges::find(kFast, driver) != kFast.end();
}

// Ranks would use the interface, or that is unknown.
bool IsOfFabric(HostView& view, const std::string& device, std::string_view driver) {
    const std::vector<NetDevice> fabric = FabricDevices(view);
    if (std::ranges::find(fabric, device, &NetDevice::name) != fabric.end()) return true;
    if (IsFastDriver(driver)) return true;
    return fabric.empty() && (driver.empty() || IsNetworkDriver(driver));
}

void LookAtWatchdog(HostView& view, const Watchdog& found, Findings& out) {
    constexpr const char* kStalledCure =
        "update the card's firmware and the kernel; reseat the card; swap the cable";
    constexpr const char* kRealtek =
        "keep its link awake: {aspm}; a newer kernel, or Realtek's own driver (r8125); swap the "
        "cable";
    const bool realtek = found.driver.starts_with("r81");
    const std::string fix = FilledFix(view, realtek ? kRealtek : kStalledCure, "", found.device);
    if (IsOfFabric(view, found.device, found.driver)) {
        return out.Fail(found.shown, kStalledExpected,
                        "the card stopped sending for seconds; the driver reset it, and every "
                        "connection stalled",
                        fix);
    }
    out.Note(found.shown, kStalledExpected,
             "the card stopped sending for seconds; ranks don't talk over it, but who is logged in "
             "by it may be cut off",
             fix);
}

// A message about one card with one meaning, reported once.
struct Said {
    const LogRule* rule = nullptr;
    size_t count = 0;
    std::string shown, pci, interface;
};

// Messages by meaning and card.
class Sayings {
  public:
    void Add(const LogLine& line, const LogRule* rule) {
        const std::string pci(PciAddressIn(line.known));
        const std::string interface = InterfaceIn(line.known);
        const std::string card = !pci.empty() ? pci : std::string(NetworkDriverIn(line.known));
        const std::string key = card + "|" + std::string(rule->why);
        const auto [place, fresh] = places_.try_emplace(key, said_.size());
        if (fresh) said_.push_back({rule, 0, Shown(line), pci, interface});
        Said& said = said_[place->second];
        ++said.count;
        if (rule->severity > said.rule->severity) {
            said.rule = rule;
            said.shown = Shown(line);
        }
    }
    const std::vector<Said>& list() const { return said_; }

  private:
    std::map<std::string, size_t> places_;
    std::vector<Said> said_;
};

void TellCardLog(HostView& view, const Said& said, Findings& out) {
    const LogRule& rule = *said.rule;
    const std::string read =
        said.count == 1 ? said.shown : fmt::format("{} ({} such lines)", said.shown, said.count);
    out.Add(rule.severity, read, std::string(rule.expected), std::string(rule.why),
            FilledFix(view, rule.cure, said.pci, said.interface));
}

// Times of link-down events by interface or card.
struct Flaps {
    std::vector<double> seconds;
    size_t count = 0;
    std::string shown, driver;
};

// More events than reboots and replugging in a quarter of an hour explain.
constexpr size_t kManyFlaps = 5;
constexpr double kFlapWindow = 900;

bool AreManyFlaps(const Flaps& flaps) {
    if (flaps.count < kManyFlaps) return false;
    if (flaps.seconds.size() < flaps.count) return true;  // no times known
    for (size_t i = 0; i + kManyFlaps <= flaps.seconds.size(); ++i) {
        const double first = flaps.seconds[i], last = flaps.seconds[i + kManyFlaps - 1];
        if (last >= first && last - first <= kFlapWindow) return true;
    }
    return false;
}

std::string FlapFix(std::string_view driver, const std::string& name) {
    const std::string device = ShellWord(name);
    if (driver == "atlantic" || driver.starts_with("r8")) {
        return fmt::format(
            "a cable of Cat 6A and another port of the switch; Energy-Efficient Ethernet off: sudo "
            "ethtool --set-eee {} eee off; then a newer kernel, driver and firmware of the card",
            device);
    }
    return fmt::format(
        "reseat and swap the cable or module, another port of the switch; the same FEC and speed "
        "on both ends: ethtool --show-fec {}",
        device);
}

void LookAtFlaps(HostView& view, const std::vector<LogLine>& lines, Findings& out) {
    std::map<std::string, Flaps> links;
    for (const LogLine& line : lines) {
        const bool down =
            Contains(line.lower, "link is down") || Contains(line.lower, "link down") ||
            (Contains(line.lower, "link change old") && line.lower.ends_with("new 0"));
        if (!down || Contains(line.lower, "alert")) continue;
        const std::string_view driver = NetworkDriverIn(line.known);
        if (driver.empty()) continue;
        const std::string interface = InterfaceIn(line.known);
        const std::string name =
            !interface.empty() ? interface : std::string(PciAddressIn(line.known));
        if (!IsOfFabric(view, interface, driver)) continue;
        Flaps& flaps = links[name.empty() ? std::string(driver) : name];
        ++flaps.count;
        if (line.seconds) flaps.seconds.push_back(*line.seconds);
        flaps.shown = Shown(line);
        flaps.driver = driver;
    }
    for (const auto& [name, flaps] : links) {
        if (!AreManyFlaps(flaps)) continue;
        out.Warn(fmt::format("{}: the link went down {} times, at last: {}", name, flaps.count,
                             flaps.shown),
                 "a link that stays up",
                 "the link flaps: each time connections stall for seconds, or end",
                 FlapFix(flaps.driver, name));
    }
}

bool IsCrash(std::string_view lower) {
    return FindRule(lower, {LogSubject::kCrash}) != nullptr;
}

// Reports a kernel crash with the network driver in its registers or trace.
void LookAtCrashes(const std::vector<LogLine>& lines, Findings& out) {
    constexpr size_t kTrace = 24;  // lines of a crash to scan
    for (size_t i = 0; i < lines.size(); ++i) {
        if (!IsCrash(lines[i].lower)) continue;
        std::string driver(NetworkDriverIn(lines[i].known));
        for (size_t k = i + 1; driver.empty() && k < std::min(i + kTrace, lines.size()); ++k) {
            const bool trace = Contains(lines[k].lower, "rip: ") || Contains(lines[k].lower, "+0x");
            if (!trace && !IsCrash(lines[k].lower)) break;
            driver = NetworkDriverIn(lines[k].known);
        }
        if (driver.empty()) continue;  // kernel-log reports the others
        return out.Fail(
            fmt::format("the driver {} crashed: {}", driver, lines[i].raw),
            "a kernel without crashes",
            "the driver is left half-done: its card hangs, and so does what waits for it, until "
            "the machine is booted",
            fmt::format("boot; a newer kernel (or the one before, where it came with an update) "
                        "and the card's newest firmware; 'sudo dmesg' has the trace for a report "
                        "about {}",
                        driver));
    }
}

void LookAtLines(HostView& view, const std::vector<LogLine>& lines, Findings& out) {
    std::vector<std::string> stalled, limited;  // without duplicates
    Sayings sayings;
    for (const LogLine& line : lines) {
        if (Contains(line.lower, "netdev watchdog") && Contains(line.lower, "timed out")) {
            const Watchdog watchdog = ParseWatchdog(line);
            if (std::ranges::find(stalled, watchdog.device) != stalled.end()) continue;
            stalled.push_back(watchdog.device);
            if (stalled.size() <= kMostFindings) LookAtWatchdog(view, watchdog, out);
            continue;
        }
        if (Contains(line.lower, "limited by") && !NetworkDriverIn(line.known).empty()) {
            const std::string card(PciAddressIn(line.known));
            if (std::ranges::find(limited, card) != limited.end()) continue;
            limited.push_back(card);
            if (limited.size() <= kMostFindings) {
                LookAtBandwidth(view, line.known, Shown(line), out);
            }
            continue;
        }
        const LogRule* rule = FindRule(line.lower, {LogSubject::kCard});
        if (rule == nullptr) continue;
        // Drivers of all kinds print "change power state" and the like.
        if (!GpuDriverIn(line.known).empty()) continue;
        sayings.Add(line, rule);
    }
    for (const Said& said : sayings.list()) {
        if (out.Count() >= kMostFindings) break;
        TellCardLog(view, said, out);
    }
}

}  // namespace

void RunNicLog(HostView& view, Findings& out) {
    const Reading log = KernelLog(view);
    if (log.refused()) {
        return out.Note("dmesg: " + log.text, "the kernel's log",
                        "drivers tell there of narrow slots, cables and heat",
                        "sudo weft doctor, or sudo sysctl kernel.dmesg_restrict=0");
    }
    if (!log.found()) return;
    const std::vector<LogLine> lines = KernelLogLines(log);
    LookAtLines(view, lines, out);
    LookAtFlaps(view, lines, out);
    LookAtCrashes(lines, out);
    if (out.empty()) out.Ok("the kernel's log has no complaint of a network driver");
}

}  // namespace weft::doctor::checks
