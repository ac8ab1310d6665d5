// Checks the Vulkan drivers for a GPU.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// A Vulkan driver is present if a file with this name exists.
struct IcdName {
    const char* prefix;
    const char* driver;
};
constexpr std::array<IcdName, 9> kIcdNames = {{{"radeon_icd", "RADV"},
                                               {"amd_icd", "AMDVLK"},
                                               {"amd_pro_icd", "AMDVLK"},
                                               {"intel_icd", "ANV"},
                                               {"intel_hasvk", "HASVK"},
                                               {"nvidia_icd", "NVIDIA"},
                                               {"nouveau_icd", "NVK"},
                                               {"lvp_icd", "lavapipe"},
                                               {"virtio_icd", "Venus"}}};
constexpr std::array<const char*, 4> kIcdFolders = {"usr/share/vulkan/icd.d", "etc/vulkan/icd.d",
                                                    "usr/local/share/vulkan/icd.d",
                                                    "run/opengl-driver/share/vulkan/icd.d"};
// Mesa 25.0 is the first that Strix Halo users report as fast and correct.
constexpr Version kMesaForHalo = {{25, 0, 0}};
// From kernel 7 on a job is killed after 2 s; earlier after 10 s, or never.
constexpr Version kShortWatchdog = {{7, 0, 0}};

std::set<std::string> VulkanDrivers(HostView& view) {
    std::set<std::string> drivers;
    for (const char* folder : kIcdFolders) {
        for (const std::string& file : view.List(folder)) {
            const auto known = std::ranges::find_if(
                kIcdNames, [&](const IcdName& icd) { return file.starts_with(icd.prefix); });
            if (known != kIcdNames.end()) drivers.insert(known->driver);
        }
    }
    return drivers;
}

// "25.0.7-2~bpo12+1" from Debian, "vulkan-radeon 1:25.2.3-1" from Arch.
std::optional<Version> MesaVersion(std::string_view package) {
    package = Trim(package);
    package.remove_prefix(package.find_last_of(" :") + 1);  // (npos + 1 is 0)
    return ParseVersion(package);
}

Reading MesaPackage(HostView& view) {
    for (const char* words :
         {"dpkg-query -W -f=${Version} mesa-vulkan-drivers",
          "rpm -q --qf=%{VERSION} mesa-vulkan-drivers", "pacman -Q vulkan-radeon"}) {
        Reading reading = view.Command(words);
        if (reading.found() && MesaVersion(reading.text)) return reading;
    }
    return {};
}

Packages MesaPackages() {
    return {"mesa-vulkan-drivers", "mesa-vulkan-drivers", "vulkan-radeon", "libvulkan_radeon",
            "hardware.graphics.enable = true;"};
}

std::string InstallVulkan(HostView& view) {
    bool nvidia = false, intel = false;
    for (const PciDevice& device : PciDevices(view)) {
        if (!device.IsGpu()) continue;
        nvidia = nvidia || device.driver == "nvidia";
        intel = intel || device.driver == "i915" || device.driver == "xe";
    }
    const bool amd = !AmdGpus(view).empty();
    if (nvidia && !amd && !intel) return "install NVIDIA's driver with its part for Vulkan";
    if (intel && !amd) {
        return Install(view, {"mesa-vulkan-drivers", "mesa-vulkan-drivers", "vulkan-intel",
                              "libvulkan_intel", "hardware.graphics.enable = true;"});
    }
    return Install(view, MesaPackages());
}

void JudgeAmd(HostView& view, const std::set<std::string>& drivers, Findings& out) {
    const std::vector<AmdGpu> gpus = AmdGpus(view);
    if (gpus.empty()) return;
    if (drivers.contains("AMDVLK")) {
        out.Warn(
            "AMDVLK is installed" + std::string(drivers.contains("RADV") ? " beside RADV" : ""),
            "RADV (Mesa) alone",
            "AMDVLK is discontinued: no buffer over 2 GiB, so that large models do not load, "
            "and prompts a quarter slower; a program that finds both may take it",
            "remove the package amdvlk (or amdgpu-pro's Vulkan), and " +
                Install(view, MesaPackages()));
    }
    const bool halo = std::ranges::any_of(gpus, &AmdGpu::IsStrixHalo);
    const Reading mesa = MesaPackage(view);
    const auto version = mesa.found() ? MesaVersion(mesa.text) : std::nullopt;
    if (halo && version && *version < kMesaForHalo) {
        out.Warn(fmt::format("Mesa {} with Strix Halo (gfx1151)", Trim(mesa.text)),
                 "Mesa 25.0 or newer",
                 "RADV of that age knows the GPU badly or not at all: Vulkan falls back to the "
                 "processor, 10 times slower, or gives wrong results",
                 Install(view, MesaPackages()) + " " + Cure(view, "newer-mesa"));
    }
    const auto kernel = KernelVersion(view);
    if (kernel && *kernel >= kShortWatchdog) {
        out.Note(fmt::format("kernel {}", KernelRelease(view)), "",
                 "amdgpu ends a job that takes 2 s and resets the GPU: weft hands over 0.2 s at a "
                 "time, but other programs' long prompts end with 'ring timeout'",
                 "for those: " + AddParameter(view, "amdgpu.lockup_timeout=10000"));
    }
}

}  // namespace

void RunGpuVulkan(HostView& view, Findings& out) {
    bool gpu = !AmdGpus(view).empty();
    for (const PciDevice& device : PciDevices(view)) {
        gpu = gpu || (device.IsGpu() && (device.driver == "amdgpu" || device.driver == "i915" ||
                                         device.driver == "xe" || device.driver == "nvidia"));
    }
    if (!gpu) return;
    const std::set<std::string> drivers = VulkanDrivers(view);
    if (drivers.empty()) {
        if (!view.Complete()) return;  // the snapshot does not cover drivers
        return out.Note("a GPU, and no Vulkan driver", "Mesa's, or NVIDIA's own",
                        "weft computes on the processor here", InstallVulkan(view));
    }
    const size_t before = out.Count();
    if (drivers.size() == 1 && drivers.contains("lavapipe")) {
        out.Warn("a GPU, but lavapipe is the only Vulkan driver", "the GPU's own driver",
                 "what asks for Vulkan computes on the processor, 10 times slower and more; weft "
                 "takes lavapipe only where --device names it",
                 InstallVulkan(view));
    }
    JudgeAmd(view, drivers, out);
    if (out.Count() == before) {
        out.Ok(fmt::format("{}", fmt::join(drivers, ", ")));
    }
}

}  // namespace weft::doctor::checks
