// ROCm against the kernel, for GPUs in general.
#include <fmt/format.h>

#include "base/check.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// The oldest mainline kernel whose amdgpu each ROCm is tested with (AMD's compatibility matrix:
// two years between them); older ones need the amdgpu-dkms of that release.
struct Pair {
    Version rocm, kernel;
};
constexpr Pair kOldest[] = {
    {{{7, 0, 0}}, {{6, 8, 0}}}, {{{6, 3, 0}}, {{6, 5, 0}}}, {{{6, 0, 0}}, {{5, 15, 0}}}};

std::string NewerDriver(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kDebian:
        case Distribution::kFedora:
        case Distribution::kYum:
        case Distribution::kSuse:
            return Install(view, {"amdgpu-dkms", "amdgpu-dkms", ""}) +
                   " (of AMD's repository, the same release as ROCm), or a newer kernel";
        case Distribution::kOstree:
        case Distribution::kArch:
        case Distribution::kNixOs:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: return "a newer kernel";
    }
    WEFT_CHECK(false);
}

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
                        NewerDriver(view));
    }
    out.Note(read, "ROCm 6 or newer", "older releases don't know the GPUs of today",
             "install a current ROCm");
}

}  // namespace

const Check kGpuRocm = {
    .name = "gpu-rocm",
    .what = "The release of ROCm against the kernel's amdgpu.",
    .reads = "/opt/rocm/.info/version, /proc/sys/kernel/osrelease, /sys/module/amdgpu/version",
    .why = "ROCm and the kernel's driver are tested in pairs; others hang.",
    .run = RunGpuRocm,
};

}  // namespace weft::doctor::checks
