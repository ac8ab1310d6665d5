// Reports messages of the kernel log: nic-log of network drivers, kernel-log all others.
#include "doctor/checks/checks.h"
#include "doctor/log_rules.h"

namespace weft::doctor::checks {
namespace {

constexpr size_t kMaxFindings = 32;
constexpr size_t kTraceLines = 24;  // lines of a crash that are scanned

// A message with one meaning (about one card), reported once.
struct LogMessage {
    const LogRule* rule = nullptr;
    size_t count = 0;
    std::string card, worst, last, pci, interface;
    double events = 0;  // "(total events = 1203)"
};

// Counts the line for the card and the rule's meaning.
void AddMessage(std::vector<LogMessage>& messages, const LogLine& line, const std::string& shown,
                const LogRule* rule, const std::string& card, const std::string& interface) {
    auto at = std::ranges::find_if(messages, [&](const LogMessage& one) {
        return one.card == card && one.rule->why == rule->why;
    });
    if (at == messages.end()) {
        messages.push_back(
            {rule, 0, card, shown, "", std::string(PciAddressIn(line.known)), interface, 0});
        at = messages.end() - 1;
    }
    ++at->count;
    at->last = line.raw;
    at->events = std::max(at->events, NumberAfter(line.raw, "total events = ").value_or(0));
    if (rule->severity <= at->rule->severity) return;
    at->rule = rule;
    at->worst = shown;
}

void AddFinding(const LogMessage& message, Severity severity, const std::string& read,
                Findings& out) {
    const LogRule& rule = *message.rule;
    out.Add(severity, read, std::string(rule.expected), std::string(rule.why),
            FilledFix(out.view(), rule.cure, message.pci, message.interface));
}

// The line from the driver's name on, as the kernel wrote it.
std::string FromDriver(const LogLine& line) {
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
        const bool own = words[i - 1].starts_with("r81") && words[i - 1].ends_with(':');
        if (!own && (PciAddressIn(words[i - 1]).empty() || words[i - 1].ends_with(':'))) continue;
        if (!word.ends_with(':')) continue;
        word.remove_suffix(1);
        return std::string(word);
    }
    return "";
}

bool IsCrash(std::string_view lower) {
    return FindRule(lower, {LogSubject::kCrash}) != nullptr;
}

// ---- PCIe bandwidth as the driver reports it.

// Judgement of the link of the card in the line; kBelow if the line names a limit above the card's
// slot. kUnknown: the link was not read.
LinkJudgement LimitAt(HostView& view, std::string_view line) {
    const std::string_view limit = After(line, "link at ", " (");
    for (std::string_view word : Words(line)) {
        if (word.ends_with(':')) word.remove_suffix(1);
        const PciDevice* card = FindPci(view, word);
        if (card == nullptr) continue;
        const PciDevice* slot = SlotOf(view, *card);
        const bool at_slot = slot == nullptr || limit == slot->address || limit == card->address;
        return at_slot ? JudgeLink(view, *card) : LinkJudgement::kBelow;
    }
    return LinkJudgement::kUnknown;
}

// Four lanes at 8 GT/s or more, or eight lanes: a common small slot, not a badly trained link.
bool IsSmallSlot(std::string_view line) {
    const std::string_view limit = After(line, "limited by ", "(");
    return LeadingNumber(limit).value_or(0) >= 8 && NumberAfter(limit, " x").value_or(0) >= 4;
}

// "31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:02.5 (capable
// of 63.008 Gb/s with 8.0 GT/s PCIe x8 link)"
void CheckBandwidth(HostView& view, std::string_view line, const std::string& shown,
                    Findings& out) {
    const size_t at = line.find(" Gb/s available PCIe bandwidth, limited by");
    const size_t begin = at == line.npos ? line.npos : line.rfind(' ', at - 1);
    if (begin == line.npos) return;
    const auto have = Number(line.substr(begin + 1, at - begin - 1));
    const auto most = NumberAfter(line, "capable of ");
    if (!have || !most) return;
    const LinkJudgement judgement = LimitAt(view, line);
    const bool unknown = judgement == LinkJudgement::kUnknown;
    if (judgement == LinkJudgement::kBelow || (unknown && !IsSmallSlot(line))) {
        Report<found::kLogBandwidth>(out, shown, RateText(*have / 8), RateText(*most / 8),
                                     After(line, "link at ", " ("));
    } else if (unknown) {
        Report<found::kLogBandwidthSmallSlot>(out, shown);
    } else if (judgement == LinkJudgement::kBridgeHidden) {
        Report<found::kLogBandwidthHidden>(out, shown);
    } else {
        Report<found::kLogBandwidthBySlot>(out, shown);
    }
}

// ---- Transmit queues that stall.

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
        const bool there = i >= 0 && i < std::ssize(words);
        std::string_view text = there ? words[static_cast<size_t>(i)] : "";
        if (text.starts_with('(')) text.remove_prefix(1);
        return std::string(text.substr(0, text.find_last_not_of(":)") + 1));
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

// Whether ranks would use the interface. True if that is unknown.
bool IsOfFabric(HostView& view, const std::string& device, std::string_view driver) {
    const NetDevice* port = FindNetDevice(view, device);
    const std::vector<NetDevice>& fabric = FabricDevices(view);
    for (const NetDevice& one : fabric) {
        if (one.name == device || (port != nullptr && one.name == port->master)) return true;
    }
    return IsOneOf(driver, "mlx4_core mlx4_en mlx5_core ice bnxt_en cxgb4 qede ionic cxi_ss1") ||
           (fabric.empty() && (driver.empty() || IsNetworkDriver(driver)));
}

void CheckWatchdog(const Watchdog& watchdog, Findings& out) {
    const char* fix =
        IsUsbDriver(watchdog.driver)
            ? "use another USB 3 port without a hub; turn off USB autosuspend for the adapter; "
              "install a newer kernel; or use a PCIe card"
        : watchdog.driver.starts_with("r81")
            ? "{realtek}; replace the cable"
            : "update the card's firmware and the kernel; reseat the card; replace the cable";
    const bool used = IsOfFabric(out.view(), watchdog.device, watchdog.driver);
    ReportAs<found::kLogStalled>(used ? kFail : kNote, out, watchdog.shown,
                                 used ? "the driver reset it, and every connection stalled"
                                      : "ranks do not use it, but a login over it may end",
                                 FilledFix(out.view(), fix, "", watchdog.device));
}

// ---- Links that flap.

// Link-down events of an interface or card.
struct Flaps {
    std::vector<double> seconds;
    size_t count = 0;
    std::string shown, driver;
};

// More events than reboots and replugging explain: five in a quarter of an hour.
bool AreTooMany(const Flaps& flaps) {
    constexpr size_t kMany = 5;
    constexpr double kWindowSeconds = 900;
    if (flaps.count < kMany) return false;
    if (flaps.seconds.size() < flaps.count) return true;  // no times known
    for (size_t i = 0; i + kMany <= flaps.seconds.size(); ++i) {
        const double first = flaps.seconds[i], last = flaps.seconds[i + kMany - 1];
        if (last >= first && last - first <= kWindowSeconds) return true;
    }
    return false;
}

void CheckFlaps(HostView& view, Findings& out) {
    std::map<std::string, Flaps> links;
    for (const LogLine& line : KernelLogLines(view)) {
        const bool down =
            ContainsAny(line.lower, "link is down|link down") ||
            (Contains(line.lower, "link change old") && line.lower.ends_with("new 0"));
        const std::string driver(down ? NetworkDriverIn(line.known) : "");
        if (driver.empty() || Contains(line.lower, "alert")) continue;
        const std::string interface = InterfaceIn(line.known);
        if (!IsOfFabric(view, interface, driver)) continue;
        const std::string name =
            !interface.empty() ? interface : std::string(PciAddressIn(line.known));
        Flaps& flaps = links[name.empty() ? driver : name];
        ++flaps.count;
        if (line.seconds) flaps.seconds.push_back(*line.seconds);
        flaps.shown = FromDriver(line);
        flaps.driver = driver;
    }
    for (const auto& [name, flaps] : links) {
        if (!AreTooMany(flaps)) continue;
        if (BeginsWithOneOf(flaps.driver, "atlantic r8")) {
            Report<found::kLogFlapsCopper>(out, name, flaps.count, flaps.shown, ShellWord(name));
        } else {
            Report<found::kLogFlaps>(out, name, flaps.count, flaps.shown, ShellWord(name));
        }
    }
}

// ---- Crashes.

// Reports a kernel crash with the network driver in its registers or trace.
void CheckDriverCrashes(const std::vector<LogLine>& lines, Findings& out) {
    for (size_t i = 0; i < lines.size(); ++i) {
        if (!IsCrash(lines[i].lower)) continue;
        std::string_view driver = NetworkDriverIn(lines[i].known);
        for (size_t k = i + 1; driver.empty() && k < std::min(i + kTraceLines, lines.size()); ++k) {
            if (!ContainsAny(lines[k].lower, "rip: |+0x") && !IsCrash(lines[k].lower)) break;
            driver = NetworkDriverIn(lines[k].known);
        }
        if (driver.empty()) continue;  // kernel-log reports the others
        return Report<found::kLogDriverCrash>(out, driver, lines[i].raw);
    }
}

// Reports crashes that name no network driver.
void CheckOtherCrashes(const std::vector<LogLine>& lines, Findings& out) {
    for (size_t i = 0; i < lines.size(); ++i) {
        const LogRule* crash = FindRule(lines[i].lower, {LogSubject::kCrash});
        if (crash == nullptr) continue;
        std::string_view net, gpu;
        for (size_t k = i; k < std::min(i + kTraceLines, lines.size()); ++k) {
            if (net.empty()) net = NetworkDriverIn(lines[k].known);
            if (gpu.empty()) gpu = GpuDriverIn(lines[k].known);
        }
        if (!net.empty()) return;
        return Report<found::kLogCrash>(out, lines[i].raw, crash->why,
                                        gpu.empty() ? "" : fmt::format(" in {}", gpu));
    }
}

void CheckCardLines(HostView& view, Findings& out) {
    std::set<std::string> stalled, limited;
    std::vector<LogMessage> messages;
    for (const LogLine& line : KernelLogLines(view)) {
        const std::string card(PciAddressIn(line.known));
        const std::string driver(NetworkDriverIn(line.known));
        if (Contains(line.lower, "netdev watchdog") && Contains(line.lower, "timed out")) {
            const Watchdog watchdog = ParseWatchdog(line);
            const bool fresh = stalled.insert(watchdog.device).second;
            if (fresh && stalled.size() <= kMaxFindings) CheckWatchdog(watchdog, out);
        } else if (Contains(line.lower, "limited by") && !driver.empty()) {
            const bool fresh = limited.insert(card).second;
            if (fresh && limited.size() <= kMaxFindings) {
                CheckBandwidth(view, line.known, FromDriver(line), out);
            }
        } else if (const LogRule* rule = FindRule(line.lower, {LogSubject::kCard});
                   // Drivers of all kinds print "change power state" and the like.
                   rule != nullptr && GpuDriverIn(line.known).empty()) {
            AddMessage(messages, line, FromDriver(line), rule, card.empty() ? driver : card,
                       InterfaceIn(line.known));
        }
    }
    for (const LogMessage& message : messages) {
        if (out.Count() >= kMaxFindings) break;
        const std::string times =
            message.count == 1 ? "" : fmt::format(" ({} such lines)", message.count);
        AddFinding(message, message.rule->severity, message.worst + times, out);
    }
}

}  // namespace

void RunNicLog(HostView& view, Findings& out) {
    const Reading log = KernelLog(view);
    if (log.refused()) return Report<found::kLogUnread>(out, log.text);
    if (!log.found()) return;
    CheckCardLines(view, out);
    CheckFlaps(view, out);
    CheckDriverCrashes(KernelLogLines(view), out);
    if (out.empty()) out.Ok("the kernel's log has no complaint of a network driver");
}

void RunKernelLog(HostView& view, Findings& out) {
    // A processor with at least this many throttle events is hot all the time.
    constexpr double kOftenThrottled = 100;
    if (!KernelLog(view).found()) return;  // nic-log reports the reason
    const std::vector<LogLine>& lines = KernelLogLines(view);
    std::vector<LogMessage> messages;
    for (const LogLine& line : lines) {
        const LogRule* rule = FindRule(line.lower, {LogSubject::kGpu, LogSubject::kMachine});
        if (rule != nullptr) AddMessage(messages, line, line.raw, rule, "", "");
    }
    for (LogMessage& message : messages) {
        const LogRule& rule = *message.rule;
        const auto count = static_cast<double>(message.count);
        const bool hot = message.events >= kOftenThrottled ||
                         (Contains(rule.words, "above threshold") && count >= kOftenThrottled);
        // The hypervisor provides a guest's time.
        const bool guest = Contains(rule.words, "tsc") && IsVirtualMachine(view);
        message.pci.clear();
        AddFinding(message,
                   guest ? kNote
                   : hot ? kWarn
                         : rule.severity,
                   fmt::format("{} times, at last: {}", message.count, message.last), out);
    }
    CheckOtherCrashes(lines, out);
    if (out.empty()) out.Ok("the kernel's log has no complaint of GPU, memory or processor");
}

}  // namespace weft::doctor::checks
