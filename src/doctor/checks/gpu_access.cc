// Checks the device files through which a program uses a GPU.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/kernel_log.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"

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

// The reason why a GPU has no driver, and the remedy.
std::string DriverFixOfGpu(HostView& view, const PciDevice& gpu) {
    if (const std::string newer = NewerKernelFor(view, gpu); !newer.empty()) return newer;
    const bool nvidia = gpu.vendor == "10de" || Contains(gpu.name, "NVIDIA");
    if (!nvidia) {
        return fmt::format("sudo modprobe {}; 'sudo dmesg' tells what it lacks ({})",
                           gpu.vendor == "8086" || Contains(gpu.name, "Intel") ? "xe" : "amdgpu",
                           Cure(view, "gpufirmware"));
    }
    const std::string dkms = view.Complete() ? "" : CommandLike(view, "dkms status").text;
    const std::string boot = view.Complete() ? "" : CommandLike(view, "mokutil --sb-state").text;
    bool rejected = Contains(boot, "SecureBoot enabled");
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        rejected = rejected || Contains(line.lower, "unavailable key is rejected") ||
                   Contains(line.lower, "unsigned module loading is restricted");
    }
    // The module exists for this kernel and was rejected.
    const bool built = Contains(gpu.modules, "nvidia_drm") ||
                       Contains(After(dkms, "nvidia"), KernelRelease(view) + ", ");
    if (rejected && (built || dkms.empty())) {
        return "Secure Boot rejects the unsigned module: " + Cure(view, "sign");
    }
    if (built) return "sudo modprobe nvidia; 'sudo dmesg' tells why it does not start";
    if (Contains(dkms, "nvidia") || Contains(gpu.modules, "nvidia")) {
        return "NVIDIA's module was not built for this kernel: " + Cure(view, "nvidiadkms");
    }
    return "install NVIDIA's driver; where it is installed, its module was not built for this "
           "kernel: " +
           Cure(view, "nvidiadkms");
}

// The kernel has an AMD display device, so only the driver's name was not read.
bool HasDisplay(HostView& view, const PciDevice& gpu) {
    const bool amd = gpu.vendor == "1002" || Contains(gpu.name, "AMD");
    return amd && (!Numbered(view, "sys/class/drm", "card").empty() ||
                   !Numbered(view, "dev/dri", "renderD").empty());
}

// Reports GPUs without a driver. A GPU passed to a guest (vfio) is fine.
void LookForDrivers(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    // Drivers are missing only if the reading shows drivers at all.
    const bool shown =
        std::ranges::any_of(devices, [](const PciDevice& one) { return !one.driver.empty(); });
    for (const PciDevice& gpu : devices) {
        const bool compute = gpu.IsComputeGpu() || Contains(gpu.name, "NVIDIA");
        if (!shown || !gpu.IsGpu() || !compute || gpu.lost || gpu.cut || gpu.is_virtual) continue;
        if (gpu.driver == "vfio-pci") {
            out.Ok(gpu.Text() + ": handed to a guest (vfio-pci)");
        } else if (gpu.driver == "nouveau") {
            out.Note(gpu.Text() + ": driver nouveau", "NVIDIA's driver",
                     "the free driver runs the GPU at a fraction of its clock, or not for Vulkan",
                     "install NVIDIA's driver, then boot");
        } else if (gpu.driver.empty() && !view.List("sys/class/drm").empty() &&
                   HasTag(view, "container")) {
            out.Note(gpu.Text() + ": no driver is told in this container", "a driver in use",
                     kAccessWhy, "look on the host that runs this container");
        } else if (gpu.driver.empty() && !gpu.name.empty() && !HasDisplay(view, gpu)) {
            out.Fail(gpu.Text() + ": no driver", "a driver in use", kAccessWhy,
                     DriverFixOfGpu(view, gpu));
        }
    }
}

}  // namespace

void RunGpuAccess(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    LookForDrivers(view, devices, out);
    bool gpu = false, any = false;
    for (const PciDevice& device : devices) {
        gpu = gpu || (device.IsGpu() && (device.driver == "amdgpu" || device.driver == "i915" ||
                                         device.driver == "xe"));
        any = any || gpu || device.IsComputeGpu() || Contains(device.name, "NVIDIA");
    }
    const bool amd = !AmdGpus(view).empty();
    if (!gpu && !amd) {
        if (!any && KnowsAllPci(view))
            out.Note("no GPU found", "", "weft computes on the processor");
        return;
    }
    const std::vector<std::string> nodes = Numbered(view, "dev/dri", "renderD");
    // the snapshot does not cover devices
    if (!view.Complete() && view.List("dev").empty()) return;
    // If this user can open it, it exists.
    const bool proven = view.Probe("access/dev/dri/renderD128").found();
    if (nodes.empty() && !proven && HasTag(view, "container")) {
        return out.Note("the host's GPU is not in this container: no /dev/dri/renderD*",
                        "/dev/dri/renderD128", kAccessWhy,
                        "start the container with --device /dev/dri --device /dev/kfd (LXC on "
                        "Proxmox: an entry dev0: /dev/dri/renderD128,gid=104)");
    }
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

}  // namespace weft::doctor::checks
