// Checks kernel, ROCm and firmware of AMD GPUs, and the memory split of an APU.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {

// ---- gpu-kernel: Kernels that are known to hang with a GPU.

namespace {

// From reports of Strix Halo users (gfx1151): compute hangs (MES failed to respond) before 6.18.4
// with ROCm 7 and newer. 6.18.4 changed the size of saved wave states, so ROCm before 7.2 does not
// run on it. 6.19 is known to work.
constexpr Version kFixed = {{6, 18, 4}};
constexpr Version kGoodKernel = {{6, 19, 0}};
constexpr Version kNewRocm = {{7, 0, 0}};
constexpr Version kMatchingRocm = {{7, 2, 0}};

}  // namespace

void RunGpuKernel(HostView& view, Findings& out) {
    bool halo = false;
    for (const AmdGpu& gpu : AmdGpus(view)) halo = halo || gpu.IsStrixHalo();
    const auto kernel = KernelVersion(view);
    if (!halo || !kernel) return;
    const std::string release = KernelRelease(view);
    const std::string rocm = RocmVersion(view);
    const std::string read = fmt::format("Strix Halo (gfx1151) with kernel {}{}", release,
                                         rocm.empty() ? "" : ", ROCm " + rocm);
    const char* expected = "kernel 6.18.4 or newer; 6.19 is known good";
    const char* why =
        "the GPU's scheduler stops ('MES failed to respond'), the job hangs and the "
        "GPU is reset, within minutes of load";
    const std::string fix = Cure(view, "upgrade-kernel", {{"value", "6.19"}});
    const auto release_of_rocm = ParseVersion(rocm);
    if (*kernel >= kFixed) {
        if (release_of_rocm && *release_of_rocm < kMatchingRocm) {
            return out.Warn(read, "ROCm 7.2 or newer on this kernel",
                            "from 6.18.4 on the kernel expects another layout of saved waves than "
                            "older ROCm has: kernels fail to start or hang",
                            "install ROCm 7.2 or newer (or use Vulkan)");
        }
        return out.Ok(read + (*kernel >= kGoodKernel ? " (known good)" : ""), expected);
    }
    if (release_of_rocm && *release_of_rocm >= kNewRocm) return out.Fail(read, expected, why, fix);
    // Harmless while ROCm is absent or was not read.
    out.Note(read, expected, std::string(why) + " with ROCm 7 and newer; Vulkan is spared", fix);
}

// ---- gpu-rocm: ROCm against the kernel, for GPUs in general.

namespace {

// The oldest mainline kernel whose amdgpu each ROCm is tested with (AMD's compatibility matrix: two
// years between them). Older kernels need the amdgpu-dkms of that release.
struct Pair {
    Version rocm, kernel;
};
constexpr Pair kOldest[] = {
    {{{7, 0, 0}}, {{6, 8, 0}}}, {{{6, 3, 0}}, {{6, 5, 0}}}, {{{6, 0, 0}}, {{5, 15, 0}}}};

}  // namespace

void RunGpuRocm(HostView& view, Findings& out) {
    const std::string rocm = RocmVersion(view);
    const auto version = ParseVersion(rocm);
    const auto kernel = KernelVersion(view);
    if (!version || !kernel) return;
    const std::string dkms = view.Text("sys/module/amdgpu/version");
    const std::string read = fmt::format("ROCm {}, kernel {}{}", rocm, KernelRelease(view),
                                         dkms.empty() ? "" : ", amdgpu-dkms " + dkms);
    for (const Pair& pair : kOldest) {
        if (*version < pair.rocm) continue;
        if (*kernel >= pair.kernel || !dkms.empty()) return out.Ok(read);
        return out.Warn(read,
                        fmt::format("kernel {}.{} or newer, or amdgpu-dkms of the same release",
                                    pair.kernel.part[0], pair.kernel.part[1]),
                        "the driver lacks what this ROCm asks of it: queues that hang, memory that "
                        "can't be had, GPUs that are not listed",
                        Cure(view, "rocm-driver"));
    }
    out.Note(read, "ROCm 6 or newer", "older releases don't know the GPUs of today",
             "install a current ROCm");
}

// ---- gpu-firmware: The date of the GPU's firmware package.

namespace {

// linux-firmware 20251125 brought scheduler firmware (MES 0x83) that faults on Strix Halo and was
// later reverted; 20260110 is known to work.
constexpr int64_t kBroken = 20251125, kGood = 20260110, kOldForHalo = 20250808;

Reading FirmwarePackage(HostView& view) {
    for (const char* words :
         {"dpkg-query -W -f=${Version} linux-firmware",
          "dpkg-query -W -f=${Version} firmware-amd-graphics",
          "rpm -q --qf=%{VERSION} amd-gpu-firmware", "rpm -q --qf=%{VERSION} linux-firmware",
          "pacman -Q linux-firmware-amdgpu"}) {
        Reading reading = view.Command(words);
        if (reading.found() && DateIn(reading.text)) return reading;
    }
    return {};
}

}  // namespace

void RunGpuFirmware(HostView& view, Findings& out) {
    bool halo = false;
    const std::vector<AmdGpu> gpus = AmdGpus(view);
    for (const AmdGpu& gpu : gpus) halo = halo || gpu.IsStrixHalo();
    if (gpus.empty()) return;
    const Reading package = FirmwarePackage(view);
    if (!package.found()) return;
    const int64_t date = *DateIn(package.text);
    const std::string read = fmt::format("firmware package {}", Trim(package.text));
    // Ubuntu's version keeps the date of the release and adds newer firmware as an update.
    if (Contains(package.text, "ubuntu")) {
        return out.Ok(read + ": Ubuntu adds firmware without a new date");
    }
    const std::string expected = fmt::format("{} or newer", kGood);
    const bool debian = view.Command("dpkg-query -W -f=${Version} firmware-amd-graphics").found();
    const std::string fix = Install(view, {debian ? "firmware-amd-graphics" : "linux-firmware",
                                           "amd-gpu-firmware", "linux-firmware-amdgpu"}) +
                            " (the newest), then boot: the firmware is loaded from the initramfs";
    if (halo && date == kBroken) {
        return out.Fail(read, expected,
                        "this date's firmware makes ROCm fault on Strix Halo, whatever its "
                        "version: memory faults and hangs under load",
                        fix);
    }
    if (halo && date < kOldForHalo) {
        return out.Warn(read, expected,
                        "firmware older than the card's fixes: the GPU hangs under compute load",
                        fix);
    }
    if (date < 20240101) {
        return out.Note(read, "2024 or newer", "older firmware does not know GPUs of today", fix);
    }
    out.Ok(read, halo ? expected : "");
}

// ---- gpu-memory: The split of an APU's memory into VRAM and GTT.

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
    // The kernel's default is half of the memory. That is a fault only on machines bought for
    // models.
    out.Add(gpu.IsStrixHalo() ? Severity::kWarn : Severity::kNote, read, expected, why, fix);
    CostQuestion question;
    question.host = FactsOf(view);
    question.so.room_bytes = usable;
    question.otherwise.room_bytes = possible;
    out.AskCost(question);
}

}  // namespace

void RunGpuMemory(HostView& view, Findings& out) {
    const auto ram = MemInfo(view, "MemTotal");
    for (const AmdGpu& gpu : AmdGpus(view)) {
        if (gpu.unified && ram && *ram >= 24 * kGib && gpu.vram_bytes > 0 && gpu.gtt_bytes > 0) {
            LookGpuMemory(view, gpu, *ram, out);
        }
    }
}

}  // namespace weft::doctor::checks
