// Reports GPU, memory and processor messages of the kernel log.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/log_rules.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// A processor with at least this many throttle events is hot all the time.
constexpr double kOftenThrottled = 100;

struct Counted {
    const LogRule* rule = nullptr;
    size_t count = 0;
    std::string last;
    double events = 0;  // "(total events = 1203)"
};

void TellKernelLog(HostView& view, const Counted& counted, Findings& out) {
    const LogRule& rule = *counted.rule;
    const bool hot = counted.events >= kOftenThrottled ||
                     (Contains(rule.words, "above threshold") &&
                      static_cast<double>(counted.count) >= kOftenThrottled);
    Severity severity = hot ? Severity::kWarn : rule.severity;
    // The hypervisor provides a guest's time.
    if (Contains(rule.words, "tsc") && IsVirtualMachine(view)) severity = Severity::kNote;
    out.Add(severity, fmt::format("{} times, at last: {}", counted.count, counted.last),
            std::string(rule.expected), std::string(rule.why), FilledFix(view, rule.cure, "", ""));
}

// Reports crashes that name no network driver (nic-log reports the others).
void LookAtOtherCrashes(const std::vector<LogLine>& lines, Findings& out) {
    for (size_t i = 0; i < lines.size(); ++i) {
        const LogRule* crash = FindRule(lines[i].lower, {LogSubject::kCrash});
        if (crash == nullptr) continue;
        std::string_view net = NetworkDriverIn(lines[i].known), gpu = GpuDriverIn(lines[i].known);
        for (size_t k = i + 1; k < std::min(i + 24, lines.size()); ++k) {
            if (net.empty()) net = NetworkDriverIn(lines[k].known);
            if (gpu.empty()) gpu = GpuDriverIn(lines[k].known);
        }
        if (!net.empty()) return;
        return out.Warn(
            lines[i].raw, "a kernel without crashes",
            fmt::format("{}{}: what it held stays held, the next hang is near", crash->why,
                        gpu.empty() ? "" : fmt::format(" in {}", gpu)),
            "boot; a newer kernel (or the one before, where it came with an update); where it "
            "comes back, test the memory (memtest86+)");
    }
}

}  // namespace

void RunKernelLog(HostView& view, Findings& out) {
    const Reading log = KernelLog(view);
    if (!log.found()) return;  // nic-log reports the reason
    const std::vector<LogLine> lines = KernelLogLines(log);
    std::vector<Counted> all;
    for (const LogLine& line : lines) {
        const LogRule* rule = FindRule(line.lower, {LogSubject::kGpu, LogSubject::kMachine});
        if (rule == nullptr) continue;
        auto place = std::ranges::find_if(
            all, [&](const Counted& one) { return one.rule->why == rule->why; });
        if (place == all.end()) place = all.insert(all.end(), {rule, 0, "", 0});
        ++place->count;
        place->last = line.raw;
        place->events =
            std::max(place->events, NumberAfter(line.raw, "total events = ").value_or(0));
        if (rule->severity > place->rule->severity) place->rule = rule;
    }
    for (const Counted& counted : all) TellKernelLog(view, counted, out);
    LookAtOtherCrashes(lines, out);
    if (out.empty()) out.Ok("the kernel's log has no complaint of GPU, memory or processor");
}

}  // namespace weft::doctor::checks
