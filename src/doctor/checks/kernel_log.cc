// What the kernel's log says of GPUs, memory and the processor.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/log_messages.h"
#include "doctor/module_remediation.h"

namespace weft::doctor::checks {
namespace {

// Throttled as often as this, a processor is hot all the time.
constexpr double kOftenThrottled = 100;

struct Counted {
    const LogMessage* message = nullptr;
    size_t count = 0;
    std::string last;
    double events = 0;  // "(total events = 1203)"
};

void TellKernelLog(HostView& view, const Counted& counted, Findings& out) {
    const LogMessage& message = *counted.message;
    const bool hot = counted.events >= kOftenThrottled ||
                     (Contains(message.words, "above threshold") &&
                      static_cast<double>(counted.count) >= kOftenThrottled);
    const Severity severity = hot ? Severity::kWarn : message.severity;
    out.Add(severity, fmt::format("{} times, at last: {}", counted.count, counted.last),
            message.expected, message.why, FilledFix(view, message.fix, "", ""));
}

struct Crash {
    std::string_view words;
    const char* why;
};
constexpr std::array<Crash, 7> kCrashes = {{
    {"bug: unable to handle", "the kernel crashed"},
    {"bug: kernel null pointer", "the kernel crashed"},
    {"unable to handle kernel", "the kernel crashed"},
    {"kernel bug at", "the kernel crashed"},
    {"general protection fault", "the kernel or a program crashed"},
    {"soft lockup", "a processor was stuck in the kernel for 20 s and more"},
    {"oops:", "the kernel crashed"},
}};

// A crash that no network driver is named in (nic-log tells of those).
void LookAtOtherCrashes(const std::vector<LogLine>& lines, Findings& out) {
    for (size_t i = 0; i < lines.size(); ++i) {
        const auto crash = std::ranges::find_if(
            kCrashes, [&](const Crash& one) { return Contains(lines[i].lower, one.words); });
        if (crash == kCrashes.end()) continue;
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

void RunKernelLog(HostView& view, Findings& out) {
    const Reading log = KernelLog(view);
    if (!log.found()) return;  // nic-log says why
    const std::vector<LogLine> lines = KernelLogLines(log);
    std::vector<Counted> all;
    for (const LogLine& line : lines) {
        const LogMessage* message = FindMessage(line.lower, GpuMessages());
        if (message == nullptr) continue;
        auto place = std::ranges::find_if(
            all, [&](const Counted& one) { return one.message->why == message->why; });
        if (place == all.end()) place = all.insert(all.end(), {message, 0, "", 0});
        ++place->count;
        place->last = line.raw;
        place->events =
            std::max(place->events, NumberAfter(line.raw, "total events = ").value_or(0));
        if (message->severity > place->message->severity) place->message = message;
    }
    for (const Counted& counted : all) TellKernelLog(view, counted, out);
    LookAtOtherCrashes(lines, out);
    if (out.empty()) out.Ok("the kernel's log has no complaint of GPU, memory or processor");
}

}  // namespace

const Check kKernelLog = {
    .name = "kernel-log",
    .what =
        "GPUs that hang or leave the bus, hardware errors, heat, crashes and killed programs in "
        "the kernel's log.",
    .reads = "dmesg, else journalctl -k",
    .why = "A GPU that hung or memory that errs is known to the kernel first.",
    .run = RunKernelLog,
};

}  // namespace weft::doctor::checks
