// What the kernel's log says of GPUs, memory and the processor.
#include <fmt/format.h>

#include <array>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"

namespace weft::doctor::checks {
namespace {

struct Hint {
    std::string_view part;
    Severity severity;
    const char* expected;
    const char* why;
    const char* fix;
};
constexpr std::array<Hint, 7> kHints = {{
    {"MES failed to respond", Severity::kWarn, "a GPU scheduler that answers",
     "the GPU's scheduler hung: the job ends, often with a reset of the GPU",
     "see gpu-kernel and gpu-firmware; current kernel, firmware and ROCm"},
    {"GPU reset begin", Severity::kWarn, "no reset of the GPU", "all work on the GPU was lost",
     "see gpu-kernel and gpu-firmware"},
    {"ring gfx", Severity::kNote, "no time-outs of the GPU's rings",
     "a job ran too long or hung the GPU", "see gpu-kernel and gpu-firmware"},
    {"[gfxhub] page fault", Severity::kNote, "no page faults of the GPU",
     "a program reached beyond its memory, or firmware and driver don't match", "see gpu-firmware"},
    {"Out of memory: Killed process", Severity::kNote, "no program killed for want of memory",
     "a model that does not fit ends so, without a word of its own",
     "a smaller quantization or context, --tp over more hosts"},
    {"[Hardware Error]", Severity::kWarn, "no hardware errors",
     "memory or processor report errors: results may be wrong, programs crash",
     "test the memory (memtest86+), lower its profile in the BIOS"},
    {"Package temperature above threshold", Severity::kNote, "no heat events",
     "a hot processor runs at half its clock: all ranks wait for this one",
     "clean the fans, more air"},
}};

void RunKernelLog(HostView& view, Findings& out) {
    const Reading log = CommandLike(view, "dmesg");
    if (!log.found()) return;  // nic-log says why
    const std::vector<LogLine> lines = KernelLogLines(log);
    for (const Hint& hint : kHints) {
        size_t count = 0;
        std::string_view last;
        for (const auto& [raw, line] : lines) {
            if (!Contains(line, hint.part)) continue;
            if (hint.part == "ring gfx" && !Contains(line, "timeout")) continue;
            ++count;
            last = raw;
        }
        if (count == 0) continue;
        out.Add(hint.severity, fmt::format("{} times, at last: {}", count, last), hint.expected,
                hint.why, hint.fix);
    }
    if (out.empty()) out.Ok("the kernel's log has no complaint of GPU, memory or processor");
}

}  // namespace

const Check kKernelLog = {
    .name = "kernel-log",
    .what = "Hangs of GPUs, hardware errors, heat and killed programs in the kernel's log.",
    .reads = "dmesg",
    .why = "A GPU that hung or memory that errs is known to the kernel first.",
    .run = RunKernelLog,
};

}  // namespace weft::doctor::checks
