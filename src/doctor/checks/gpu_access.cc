// The devices through which a program uses a GPU.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/pci.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kAccessWhy =
    "programs don't see the GPU and compute on the processor, 3 to 30 "
    "times slower";

bool Permitted(HostView& view, const std::string& device, Findings& out) {
    const Reading access = view.Probe("access/" + device);
    if (!access.found() || Trim(access.text) == "rw") return true;
    out.Fail(fmt::format("/{}: {}", device, Trim(access.text)), "readable and writable", kAccessWhy,
             "sudo usermod -aG render,video $USER, then log in again (in a container: --device "
             "/dev/kfd --device /dev/dri --group-add render)");
    return false;
}

void RunGpuAccess(HostView& view, Findings& out) {
    bool gpu = false;
    for (const PciDevice& device : PciDevices(view)) {
        gpu = gpu || (device.IsGpu() && (device.driver == "amdgpu" || device.driver == "i915" ||
                                         device.driver == "xe"));
    }
    const bool amd = !AmdGpus(view).empty();
    if (!gpu && !amd) return;
    const std::vector<std::string> nodes = Numbered(view, "dev/dri", "renderD");
    if (!view.Complete() && view.List("dev").empty()) return;  // a snapshot that looked elsewhere
    // That this user may open it proves that it is there.
    const bool proven = view.Probe("access/dev/dri/renderD128").found();
    if (nodes.empty() && !proven) {
        return out.Fail("a GPU, but no /dev/dri/renderD*", "/dev/dri/renderD128", kAccessWhy,
                        "sudo modprobe amdgpu, and dmesg | grep -i amdgpu for what it lacks "
                        "(firmware packages: linux-firmware, firmware-amd-graphics)");
    }
    bool good = true;
    for (const std::string& node : nodes) good = Permitted(view, "dev/dri/" + node, out) && good;
    const bool kfd = view.Has("dev/kfd");
    if (kfd) good = Permitted(view, "dev/kfd", out) && good;
    if (amd && !kfd) {
        good = false;
        out.Note("an AMD GPU, but no /dev/kfd", "/dev/kfd",
                 "Vulkan works without it, ROCm does not",
                 "a kernel with CONFIG_HSA_AMD; in a container: --device /dev/kfd");
    }
    if (good) out.Ok(fmt::format("/dev/dri: {}{}", Joined(nodes), kfd ? ", /dev/kfd" : ""));
}

}  // namespace

const Check kGpuAccess = {
    .name = "gpu-access",
    .what = "The device files of GPUs, and whether this user may use them.",
    .reads = "/dev/kfd, /dev/dri, access(2)",
    .why = "Without them the GPU is silently not used.",
    .run = RunGpuAccess,
};

}  // namespace weft::doctor::checks
