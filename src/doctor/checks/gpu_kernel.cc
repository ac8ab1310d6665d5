// Kernels that are known to hang with a GPU.
#include <fmt/format.h>

#include "base/check.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// Reports of users of Strix Halo (gfx1151): compute hangs (MES failed to respond) below 6.18.4
// with ROCm 7 and newer; 6.18.4 changed the size of saved wave states, so that ROCm before 7.2
// does not run on it; 6.19 is known good.
constexpr Version kFixed = {{6, 18, 4}};
constexpr Version kGoodKernel = {{6, 19, 0}};
constexpr Version kNewRocm = {{7, 0, 0}};
constexpr Version kMatchingRocm = {{7, 2, 0}};

std::string FixOfGpuKernel(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora: return "sudo dnf upgrade kernel (to 6.19), and boot";
        case Distribution::kOstree: return "sudo rpm-ostree upgrade (to kernel 6.19), and boot";
        case Distribution::kArch: return "sudo pacman -Syu (to kernel 6.19), and boot";
        case Distribution::kSuse: return "sudo zypper dup (to kernel 6.19), and boot";
        case Distribution::kNixOs:
            return Configure("boot.kernelPackages = pkgs.linuxPackages_latest; (6.19)", true);
        case Distribution::kDebian:
            if (DebianKindOf(view) == DebianKind::kUbuntu) {
                return "a kernel 6.19 or newer: Ubuntu's mainline builds, or the newest of 'apt "
                       "search linux-image-oem'; then boot";
            }
            return "a kernel 6.19 or newer of the backports: 'apt policy linux-image-amd64' shows "
                   "what there is; then boot";
        case Distribution::kYum:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: return "install kernel 6.19 or newer, then boot";
    }
    WEFT_CHECK(false);
}

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
    const std::string fix = FixOfGpuKernel(view);
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
    // Without ROCm, or where it was not looked for, it hurts nobody yet.
    out.Note(read, expected, std::string(why) + " with ROCm 7 and newer; Vulkan is spared", fix);
}

}  // namespace

const Check kGpuKernel = {
    .name = "gpu-kernel",
    .what = "Kernel versions that hang with this GPU and this ROCm (Strix Halo, gfx1151).",
    .reads =
        "/proc/sys/kernel/osrelease, /opt/rocm/.info/version, "
        "/sys/class/kfd/kfd/topology/nodes/*/properties",
    .why = "Strix Halo with a new ROCm hangs on kernels below 6.18.4; 6.19 is known good.",
    .run = RunGpuKernel,
};

}  // namespace weft::doctor::checks
