// Checks kernel, ROCm and firmware of AMD GPUs.
#include "doctor/checks/checks.h"
#include "doctor/gpu.h"

namespace weft::doctor::checks {
namespace {

bool HasStrixHalo(HostView& view) {
    return std::ranges::any_of(AmdGpus(view), &AmdGpu::IsStrixHalo);
}

// Version of the installed package with AMD's firmware; "": not read.
std::string FirmwarePackage(HostView& view) {
    for (const char* command :
         {"dpkg-query -W -f=${Version} linux-firmware",
          "dpkg-query -W -f=${Version} firmware-amd-graphics",
          "rpm -q --qf=%{VERSION} amd-gpu-firmware", "rpm -q --qf=%{VERSION} linux-firmware",
          "pacman -Q linux-firmware-amdgpu"}) {
        const Reading reading = view.Command(command);
        if (reading.found() && DateIn(reading.text)) return std::string(Trim(reading.text));
    }
    return "";
}

}  // namespace

// From reports of Strix Halo users (gfx1151): compute hangs (MES failed to respond) before 6.18.4
// with ROCm 7 and newer. 6.18.4 changed the size of saved wave states, so ROCm before 7.2 does not
// run on it. 6.19 is known to work.
void RunGpuKernel(HostView& view, Findings& out) {
    constexpr Version kFixed = {{6, 18, 4}}, kGoodKernel = {{6, 19, 0}};
    constexpr Version kNewRocm = {{7, 0, 0}}, kMatchingRocm = {{7, 2, 0}};
    const auto kernel = KernelVersion(view);
    if (!kernel || !HasStrixHalo(view)) return;
    const std::string name = RocmVersion(view);
    const auto rocm = ParseVersion(name);
    const std::string read = fmt::format("Strix Halo (gfx1151) with kernel {}{}",
                                         KernelRelease(view), name.empty() ? "" : ", ROCm " + name);
    if (*kernel >= kFixed && rocm && *rocm < kMatchingRocm) {
        Report<found::kGpuRocmTooOld>(view, out, read);
    } else if (*kernel >= kFixed) {
        Report<found::kGpuKernelFine>(view, out, read,
                                      *kernel >= kGoodKernel ? " (known good)" : "");
    } else if (rocm && *rocm >= kNewRocm) {
        Report<found::kGpuKernelHangs>(view, out, read, "");
    } else {
        // Harmless while ROCm is absent or was not read.
        ReportAs<found::kGpuKernelHangs>(Severity::kNote, view, out, read,
                                         "with ROCm 7 or newer (not with Vulkan), ");
    }
}

void RunGpuRocm(HostView& view, Findings& out) {
    // The oldest mainline kernel whose amdgpu each ROCm is tested with (AMD's compatibility matrix:
    // two years between them). Older kernels need the amdgpu-dkms of that release.
    struct Pair {
        Version rocm, kernel;
    };
    constexpr Pair kOldest[] = {
        {{{7, 0, 0}}, {{6, 8, 0}}}, {{{6, 3, 0}}, {{6, 5, 0}}}, {{{6, 0, 0}}, {{5, 15, 0}}}};
    const std::string rocm = RocmVersion(view);
    const auto version = ParseVersion(rocm);
    const auto kernel = KernelVersion(view);
    if (!version || !kernel) return;
    const std::string dkms = view.Text("sys/module/amdgpu/version");
    const std::string read = fmt::format("ROCm {}, kernel {}{}", rocm, KernelRelease(view),
                                         dkms.empty() ? "" : ", amdgpu-dkms " + dkms);
    for (const Pair& pair : kOldest) {
        if (*version < pair.rocm) continue;
        if (*kernel >= pair.kernel || !dkms.empty()) {
            return out.Ok(read);
        }
        return Report<found::kRocmKernelOld>(view, out, read, pair.kernel.part[0],
                                             pair.kernel.part[1]);
    }
    Report<found::kRocmOld>(view, out, read);
}

// linux-firmware 20251125 brought scheduler firmware (MES 0x83) that faults on Strix Halo and was
// later reverted; 20260110 is known to work.
void RunGpuFirmware(HostView& view, Findings& out) {
    constexpr int64_t kBroken = 20251125, kGood = 20260110, kOldForHalo = 20250808;
    if (AmdGpus(view).empty()) return;
    const bool halo = HasStrixHalo(view);
    const std::string package = FirmwarePackage(view);
    if (package.empty()) return;
    const int64_t date = *DateIn(package);
    if (Contains(package, "ubuntu")) {
        // Ubuntu's version keeps the date of the release and adds newer firmware as an update.
        ReportOk(out, "firmware package {}: Ubuntu adds firmware without a new date", package);
    } else if (halo && date == kBroken) {
        Report<found::kFirmwareBroken>(view, out, package, kGood);
    } else if (halo && date < kOldForHalo) {
        Report<found::kFirmwareOldHalo>(view, out, package, kGood);
    } else if (date < 20240101) {
        Report<found::kFirmwareOld>(view, out, package);
    } else {
        Report<found::kFirmwareFine>(view, out, package,
                                     halo ? fmt::format("{} or newer", kGood) : "");
    }
}

}  // namespace weft::doctor::checks
