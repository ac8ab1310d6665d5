// How the memory of an APU is split between what only the GPU may use and what it may borrow.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kForSystem = 8 * kGib;

void LookGpuMemory(HostView& view, const AmdGpu& gpu, double ram, Findings& out) {
    const double all = ram + gpu.vram_bytes;
    const double usable = std::max(gpu.vram_bytes, gpu.gtt_bytes);
    const std::string read =
        fmt::format("{}: VRAM {}, GTT {}, left to the system {}", gpu.card,
                    SizeText(gpu.vram_bytes), SizeText(gpu.gtt_bytes), SizeText(ram));
    const double possible = all - kForSystem;
    if (usable >= possible * 0.8) {
        return out.Ok(read, fmt::format("{} for models", SizeText(possible)));
    }
    const std::string expected =
        fmt::format("{} of {} for models: a small VRAM in the BIOS, the rest as GTT",
                    SizeText(possible), SizeText(all));
    const std::string why =
        fmt::format("models up to {} fit in place of {}; what does not fit runs on the processor",
                    SizeText(usable), SizeText(possible));
    const std::string fix =
        (gpu.vram_bytes > 2 * kGib ? "set the GPU's memory to 512 MB in the BIOS; "
                                   : std::string()) +
        BorrowForModels(view);
    // Half of the memory is the kernel's own choice. Only who buys such a machine for models loses.
    out.Add(gpu.IsStrixHalo() ? Severity::kWarn : Severity::kNote, read, expected, why, fix);
    CostQuestion question;
    question.host = FactsOf(view);
    question.so.room_bytes = usable;
    question.otherwise.room_bytes = possible;
    out.AskCost(question);
}

void RunGpuMemory(HostView& view, Findings& out) {
    const auto ram = MemInfo(view, "MemTotal");
    for (const AmdGpu& gpu : AmdGpus(view)) {
        if (gpu.unified && ram && *ram >= 24 * kGib && gpu.vram_bytes > 0 && gpu.gtt_bytes > 0) {
            LookGpuMemory(view, gpu, *ram, out);
        }
    }
}

}  // namespace

const Check kGpuMemory = {
    .name = "gpu-memory",
    .what = "The split of unified memory: VRAM and GTT of an APU against what models need.",
    .reads = "/sys/class/drm/card*/device/mem_info_{vram,gtt}_total, /proc/meminfo",
    .why =
        "By default a GPU may use half of a 128 GB machine, and the model that it was bought "
        "for does not fit.",
    .run = RunGpuMemory,
};

}  // namespace weft::doctor::checks
