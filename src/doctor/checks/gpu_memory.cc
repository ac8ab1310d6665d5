// How the memory of an APU is split between what only the GPU may use and what it may borrow.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"

namespace weft::doctor::checks {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kForSystem = 8 * kGib;

void LookGpuMemory(const AmdGpu& gpu, double ram, Findings& out) {
    const double all = ram + gpu.vram_bytes;
    const double usable = std::max(gpu.vram_bytes, gpu.gtt_bytes);
    const std::string read =
        fmt::format("{}: VRAM {}, GTT {}, left to the system {}", gpu.card,
                    SizeText(gpu.vram_bytes), SizeText(gpu.gtt_bytes), SizeText(ram));
    const double possible = all - kForSystem;
    const auto pages = static_cast<int64_t>(possible / 4096);
    if (usable >= possible * 0.8) {
        return out.Ok(read, fmt::format("{} for models", SizeText(possible)));
    }
    const std::string expected =
        fmt::format("{} of {} for models: a small VRAM in the BIOS, the rest as GTT",
                    SizeText(possible), SizeText(all));
    const std::string why = fmt::format(
        "models up to {} fit in place of {}: a 70B model in 4 bits needs 40 GiB, a 235B one 130 "
        "GiB; what does not fit runs on the processor, 3 to 5 times slower",
        SizeText(usable), SizeText(possible));
    const std::string fix = fmt::format(
        "set the GPU's memory to 512 MB in the BIOS, and on the kernel's command line "
        "ttm.pages_limit={} ttm.page_pool_size={} amdgpu.gttsize={}",
        pages, pages, static_cast<int64_t>(possible / (1 << 20)));
    out.Warn(read, expected, why, fix);
}

void RunGpuMemory(HostView& view, Findings& out) {
    const auto ram = MemInfo(view, "MemTotal");
    for (const AmdGpu& gpu : AmdGpus(view)) {
        if (gpu.unified && ram && *ram >= 24 * kGib && gpu.vram_bytes + gpu.gtt_bytes > 0) {
            LookGpuMemory(gpu, *ram, out);
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
