// Checks GPUs: drivers, device files, Vulkan, memory split of an APU, kernel parameters; kernel,
// ROCm and firmware of AMD GPUs.
#include "doctor/gpu.h"

#include <cmath>

#include "base/text.h"
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- gpu-access: drivers and device files.

bool IsPermitted(HostView& view, const std::string& device, Findings& out) {
    const Reading access = view.Probe("access/" + device);
    if (!access.found() || Trim(access.text) == "rw") return true;
    Report<found::kGpuDenied>(out, device, Trim(access.text));
    return false;
}

// The reason why a GPU has no driver, and the fix.
std::string GpuDriverFix(HostView& view, const PciDevice& gpu) {
    if (const std::string newer = NewerKernelFor(view, gpu); !newer.empty()) return newer;
    if (gpu.vendor != "10de" && !Contains(gpu.name, "NVIDIA")) {
        const bool intel = gpu.vendor == "8086" || Contains(gpu.name, "Intel");
        return fmt::format("sudo modprobe {}; 'sudo dmesg' shows what the driver lacks{}",
                           intel ? "xe" : "amdgpu",
                           intel ? "" : " (firmware: " + Cure(view, "gpufirmware") + ")");
    }
    const std::string dkms = view.Complete() ? "" : CommandLike(view, "dkms status").text;
    const std::string boot = view.Complete() ? "" : CommandLike(view, "mokutil --sb-state").text;
    bool rejected = Contains(boot, "SecureBoot enabled");
    for (const LogLine& line : KernelLogLines(view)) {
        rejected = rejected || Contains(line.lower, "unavailable key is rejected") ||
                   Contains(line.lower, "unsigned module loading is restricted");
    }
    // The module exists for this kernel.
    const bool built = Contains(gpu.modules, "nvidia_drm") ||
                       Contains(After(dkms, "nvidia"), KernelRelease(view) + ", ");
    if (rejected && (built || dkms.empty())) {
        return "Secure Boot rejects the unsigned module: " + Cure(view, "sign");
    }
    if (built) return "sudo modprobe nvidia; 'sudo dmesg' shows why it does not start";
    const bool installed = Contains(dkms, "nvidia") || Contains(gpu.modules, "nvidia");
    return (installed ? "NVIDIA's module was not built for this kernel: "
                      : "install NVIDIA's driver; if it is installed, its module was not built for "
                        "this kernel: ") +
           Cure(view, "nvidiadkms");
}

// Whether the kernel shows a display device for an AMD GPU. Then a driver runs whose name was not
// read.
bool HasDisplay(HostView& view, const PciDevice& gpu) {
    const bool amd = gpu.vendor == "1002" || Contains(gpu.name, "AMD");
    return amd && (!Numbered(view, "sys/class/drm", "card").empty() ||
                   !Numbered(view, "dev/dri", "renderD").empty());
}

void CheckGpuDrivers(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    // If no device shows a driver, the reading has no drivers, so none is known to be missing.
    if (std::ranges::all_of(devices, [](const auto& one) { return one.driver.empty(); })) return;
    for (const PciDevice& gpu : devices) {
        const bool compute = gpu.IsComputeGpu() || Contains(gpu.name, "NVIDIA");
        if (!gpu.IsGpu() || !compute || gpu.lost || gpu.cut || gpu.is_virtual) continue;
        if (gpu.driver == "vfio-pci") {
            ReportOk(out, "{}: handed to a guest (vfio-pci)", gpu.Text());
        } else if (gpu.driver == "nouveau") {
            Report<found::kGpuNouveau>(out, gpu.Text());
        } else if (!gpu.driver.empty()) {
            continue;
        } else if (!view.List("sys/class/drm").empty() && HasTag(view, "container")) {
            Report<found::kGpuDriverHidden>(out, gpu.Text());
        } else if (!gpu.name.empty() && !HasDisplay(view, gpu)) {
            Report<found::kGpuNoDriver>(out, gpu.Text(), GpuDriverFix(view, gpu));
        }
    }
}

bool IsNvidia(const PciDevice& device) {
    return device.IsGpu() && device.driver == "nvidia";
}

// The device files of NVIDIA's driver.
void CheckNvidiaNodes(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    // (Snapshots of older versions cover neither these files nor libraries.)
    if (std::ranges::none_of(devices, IsNvidia) || !Cuda(view).known) return;
    const std::vector<std::string> nodes = Numbered(view, "dev", "nvidia");
    if (nodes.empty() && HasTag(view, "container"))
        return Report<found::kNvidiaNotInContainer>(out);
    if (nodes.empty()) return Report<found::kNvidiaNoNode>(out);
    bool good = true;
    for (const std::string& node : nodes) good = IsPermitted(view, "dev/" + node, out) && good;
    if (good) ReportOk(out, "/dev: {}", Joined(nodes));
}

bool HasMesaDriver(const PciDevice& device) {
    return device.IsGpu() &&
           (device.driver == "amdgpu" || device.driver == "i915" || device.driver == "xe");
}

// ---- gpu-vulkan: Vulkan drivers.

// A Vulkan driver is present if a file with this name exists.
constexpr std::pair<std::string_view, const char*> kIcdNames[] = {
    {"radeon_icd", "RADV"}, {"amd_icd", "AMDVLK"},    {"amd_pro_icd", "AMDVLK"},
    {"intel_icd", "ANV"},   {"intel_hasvk", "HASVK"}, {"nvidia_icd", "NVIDIA"},
    {"nouveau_icd", "NVK"}, {"lvp_icd", "lavapipe"},  {"virtio_icd", "Venus"}};
constexpr const char* kIcdFolders[] = {"usr/share/vulkan/icd.d", "etc/vulkan/icd.d",
                                       "usr/local/share/vulkan/icd.d",
                                       "run/opengl-driver/share/vulkan/icd.d"};

std::set<std::string> VulkanDrivers(HostView& view) {
    std::set<std::string> drivers;
    for (const char* folder : kIcdFolders) {
        for (const std::string& file : view.List(folder)) {
            for (const auto& [begin, driver] : kIcdNames) {
                if (file.starts_with(begin)) drivers.insert(driver);
            }
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
    for (const char* command :
         {"dpkg-query -W -f=${Version} mesa-vulkan-drivers",
          "rpm -q --qf=%{VERSION} mesa-vulkan-drivers", "pacman -Q vulkan-radeon"}) {
        Reading reading = view.Command(command);
        if (reading.found() && MesaVersion(reading.text)) return reading;
    }
    return {};
}

std::string InstallVulkan(HostView& view, const std::vector<PciDevice>& devices) {
    bool nvidia = false, intel = false;
    for (const PciDevice& device : devices) {
        if (!device.IsGpu()) continue;
        nvidia = nvidia || device.driver == "nvidia";
        intel = intel || device.driver == "i915" || device.driver == "xe";
    }
    const bool amd = !AmdGpus(view).empty();
    if (nvidia && !amd && !intel) return "install NVIDIA's driver with its Vulkan library";
    return Cure(view, intel && !amd ? "mesa-intel" : "mesa");
}

void CheckAmdVulkan(HostView& view, const std::set<std::string>& drivers, Findings& out) {
    // Mesa 25.0 is the first version that Strix Halo users report as fast and correct.
    constexpr Version kMesaForHalo = {{25, 0, 0}};
    // From kernel 7 on a job is killed after 2 s; earlier after 10 s, or never.
    constexpr Version kShortWatchdog = {{7, 0, 0}};
    const std::vector<AmdGpu>& gpus = AmdGpus(view);
    if (gpus.empty()) return;
    if (drivers.contains("AMDVLK")) {
        Report<found::kAmdvlk>(out, drivers.contains("RADV") ? " beside RADV" : "");
    }
    const Reading mesa = MesaPackage(view);
    const auto version = mesa.found() ? MesaVersion(mesa.text) : std::nullopt;
    if (std::ranges::any_of(gpus, &AmdGpu::IsStrixHalo) && version && *version < kMesaForHalo) {
        Report<found::kMesaOld>(out, Trim(mesa.text));
    }
    const auto kernel = KernelVersion(view);
    if (kernel && *kernel >= kShortWatchdog) {
        Report<found::kShortLockup>(out, KernelRelease(view));
    }
}

// ---- kernel-parameters: kernel parameters that affect GPUs.

// The value of the parameter NAME=VALUE on the kernel's command line.
std::optional<double> ValueOf(std::string_view line, std::string_view name) {
    std::optional<double> value;
    for (std::string_view word : Words(line)) {
        const size_t equals = std::min(word.find('='), word.size());
        if (word.substr(0, equals) != name) continue;
        value = Number(word.substr(std::min(equals + 1, word.size())));
    }
    return value;
}

void CheckMemoryParameters(HostView& view, std::string_view line, Findings& out) {
    // -1 is the driver's own choice, as a parameter that is not set.
    const double gtt_mib = ValueOf(line, "amdgpu.gttsize").value_or(-1);
    const std::string parameter = fmt::format("{}.pages_limit", TtmModule(view));
    const double pages = ValueOf(line, parameter).value_or(-1);
    const auto ram = MemInfo(view, "MemTotal");
    if (gtt_mib < 0 && pages < 0) return;
    const double gtt = gtt_mib * (1 << 20), limit = pages * 4096;
    const std::string gtt_size = SizeText(gtt), limit_size = SizeText(limit);
    std::vector<std::string> set;
    if (gtt_mib >= 0) set.push_back(fmt::format("amdgpu.gttsize={:.0f} ({})", gtt_mib, gtt_size));
    if (pages >= 0) set.push_back(fmt::format("{}={:.0f} ({})", parameter, pages, limit_size));
    const std::string read = ListText(set);
    const std::string fix = BorrowForModels(view);
    if (ram && (gtt > *ram || limit > *ram)) {
        Report<found::kParametersTooLarge>(out, read, SizeText(*ram), fix);
    } else if (gtt_mib > 0 && pages >= 0 && limit < gtt * 0.98) {
        Report<found::kParametersDiffer>(out, read, limit_size, gtt_size, fix);
    } else if (gtt_mib >= 0 && pages < 0) {
        Report<found::kParameterOld>(out, read, fix);
    } else {
        out.Ok(read);
    }
}

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

void RunGpuAccess(HostView& view, Findings& out) {
    const std::vector<PciDevice>& devices = PciDevices(view);
    CheckGpuDrivers(view, devices, out);
    CheckNvidiaNodes(view, devices, out);
    const bool amd = !AmdGpus(view).empty();
    const auto mesa = std::ranges::find_if(devices, HasMesaDriver);
    if (!amd && mesa == devices.end()) {
        const bool any = std::ranges::any_of(devices, [](const PciDevice& device) {
            return device.IsComputeGpu() || Contains(device.name, "NVIDIA");
        });
        if (!any && HasAllPci(view)) Report<found::kNoGpu>(out);
        return;
    }
    const std::vector<std::string> nodes = Numbered(view, "dev/dri", "renderD");
    // The snapshot does not cover devices.
    if (!view.Complete() && view.List("dev").empty()) return;
    // A node that this user can open exists.
    if (nodes.empty() && !view.Probe("access/dev/dri/renderD128").found()) {
        if (HasTag(view, "container")) return Report<found::kGpuNotInContainer>(out);
        const std::string driver = amd ? "amdgpu" : mesa->driver;
        return Report<found::kGpuNoNode>(
            out, driver,
            driver == "amdgpu" ? " (firmware: " + Cure(view, "gpufirmware") + ")" : "");
    }
    bool good = true;
    for (const std::string& node : nodes) good = IsPermitted(view, "dev/dri/" + node, out) && good;
    const bool kfd = view.Has("dev/kfd");
    if (kfd) good = IsPermitted(view, "dev/kfd", out) && good;
    if (amd && !kfd) return Report<found::kGpuNoKfd>(out);
    if (good) ReportOk(out, "/dev/dri: {}{}", Joined(nodes), kfd ? ", /dev/kfd" : "");
}

void RunGpuVulkan(HostView& view, Findings& out) {
    const std::vector<PciDevice>& devices = PciDevices(view);
    const bool gpu = std::ranges::any_of(devices, [](const PciDevice& device) {
        return HasMesaDriver(device) || (device.IsGpu() && device.driver == "nvidia");
    });
    const std::vector<AmdGpu>& amd = AmdGpus(view);
    if (!gpu && amd.empty()) return;
    if (!amd.empty() && std::ranges::all_of(amd, NeedsHip)) return;  // gpu-native
    const std::set<std::string> drivers = VulkanDrivers(view);
    if (drivers.empty()) {
        if (!view.Complete()) return;  // the snapshot does not cover drivers
        if (amd.empty() ? Cuda(view).Works() : Hip(view).Works()) return;
        return Report<found::kNoVulkan>(out, InstallVulkan(view, devices));
    }
    if (drivers.size() == 1 && drivers.contains("lavapipe")) {
        Report<found::kLavapipe>(out, InstallVulkan(view, devices));
    }
    CheckAmdVulkan(view, drivers, out);
    if (out.empty()) out.Ok(ListText(drivers));
}

// ---- gpu-native: the libraries of CUDA and HIP.

namespace {

void CheckCuda(HostView& view, bool has_vulkan, Findings& out) {
    const NativeDriver& cuda = Cuda(view);
    const std::string module = view.Text("sys/module/nvidia/version");
    if (!cuda.library.empty() && !module.empty() && Contains(cuda.library, ".") &&
        cuda.library != module) {
        Report<found::kNvidiaMismatch>(out, cuda.library, module);
    } else if (cuda.Works() || has_vulkan) {
        ReportOk(out, "libcuda {}, libnvrtc {}", cuda.library.empty() ? "none" : cuda.library,
                 cuda.compiler.empty() ? "none" : cuda.compiler);
    } else if (cuda.library.empty()) {
        Report<found::kNoCuda>(out);
    } else {
        Report<found::kNoNvrtc>(out, cuda.library);
    }
}

}  // namespace

void RunGpuNative(HostView& view, Findings& out) {
    if (Cuda(view).known && std::ranges::any_of(PciDevices(view), IsNvidia))
        CheckCuda(view, VulkanDrivers(view).contains("NVIDIA"), out);
    const NativeDriver& hip = Hip(view);
    const auto needs = std::ranges::find_if(AmdGpus(view), NeedsHip);
    if (!hip.known || AmdGpus(view).empty()) return;
    if (hip.Works() || needs == AmdGpus(view).end()) {
        ReportOk(out, "libamdhip64 {}, libhiprtc {}", hip.library.empty() ? "none" : hip.library,
                 hip.compiler.empty() ? "none" : hip.compiler);
    } else {
        Report<found::kNoHip>(out, needs->target,
                              hip.library.empty() ? "libamdhip64.so" : "libhiprtc.so");
    }
}

// ---- gpu-memory: the split of an APU's memory into VRAM and GTT.

void RunGpuMemory(HostView& view, Findings& out) {
    constexpr double kGib = 1 << 30, kForSystem = 8 * kGib;
    const auto ram = MemInfo(view, "MemTotal");
    if (!ram || *ram < 24 * kGib) return;
    for (const AmdGpu& gpu : AmdGpus(view)) {
        if (!gpu.unified || gpu.vram_bytes <= 0 || gpu.gtt_bytes <= 0) continue;
        const double all = *ram + gpu.vram_bytes, possible = all - kForSystem;
        const double usable = std::max(gpu.vram_bytes, gpu.gtt_bytes);
        // The kernel's default is half of the memory. The default is a fault only on machines
        // bought for models.
        const Severity severity = usable >= possible * 0.8 ? kOk
                                  : gpu.IsStrixHalo()      ? kWarn
                                                           : kNote;
        ReportAs<found::kGpuMemory>(
            severity, out, gpu.card, SizeText(gpu.vram_bytes), SizeText(gpu.gtt_bytes),
            SizeText(*ram), SizeText(possible), SizeText(all), SizeText(usable),
            (gpu.vram_bytes > 2 * kGib ? "set the GPU's memory to 512 MB in the BIOS; " : "") +
                BorrowForModels(view));
        if (severity == kOk) continue;
        CostQuestion question;
        question.host = FactsOf(view);
        question.faulty.space_bytes = usable;
        question.healthy.space_bytes = possible;
        out.EstimateCost(question);
    }
}

// Parameters that take memory or processors from the machine, without a message. `binds`: whether
// the value is at most what the machine still has, so that the parameter may be the reason.
struct TakingParameter {
    const char* name;
    bool (*binds)(HostView& view, std::string_view value);
    const char* effect;
};

bool BindsMemory(HostView& view, std::string_view value) {
    const auto ram = MemInfo(view, "MemTotal");
    const size_t unit =
        std::string_view("KMGT").find(value.empty() ? '?' : UpperCase(value).back());
    const bool named = unit != std::string_view::npos;
    const auto count = Number(value.substr(0, value.size() - (named ? 1 : 0)));
    const double bytes = count.value_or(0) * std::pow(1024.0, named ? unit + 1.0 : 0.0);
    return bytes > 0 && (!ram || bytes < *ram * 1.5);
}

bool BindsProcessors(HostView& view, std::string_view value) {
    if (IsVirtualMachine(view)) return false;  // WSL boots with the number that the guest has
    const auto most = Number(value), now = Number(view.Probe("cpus").text);
    return most && (!now || *most <= std::max(*now, 1.0));
}

// (Boards with ARM processors describe themselves by a device tree.)
bool IsX86(HostView& view, std::string_view value) {
    return value == "off" && Contains(view.Text("proc/cpuinfo"), "physical id");
}

constexpr TakingParameter kTaking[] = {
    {"mem", BindsMemory, "the kernel uses no memory above this size"},
    {"maxcpus", BindsProcessors, "the kernel starts no more processors than this"},
    {"nr_cpus", BindsProcessors, "the kernel uses no more processors than this"},
    {"nosmp", [](HostView&, std::string_view) { return true; }, "the kernel uses one processor"},
    {"acpi", IsX86,
     "the kernel knows neither the machine's memory nodes nor its power states, and may use one "
     "processor"},
};

void CheckTakingParameters(HostView& view, std::string_view line, Findings& out) {
    for (const std::string_view word : Words(line)) {
        const size_t equals = std::min(word.find('='), word.size());
        for (const TakingParameter& taking : kTaking) {
            if (word.substr(0, equals) != taking.name) continue;
            if (!taking.binds(view, word.substr(std::min(equals + 1, word.size())))) continue;
            Report<found::kTakingParameter>(out, word, taking.effect,
                                            RemoveParameter(view, std::string(word)));
        }
    }
}

void RunKernelParameters(HostView& view, Findings& out) {
    const Reading line = view.Read("proc/cmdline");
    if (!line.found()) return;
    CheckMemoryParameters(view, line.text, out);
    const bool nomodeset = std::ranges::any_of(Words(line.text), [](std::string_view word) {
        return word.substr(0, word.find('=')) == "nomodeset";
    });
    if (nomodeset && !AmdGpus(view).empty()) Report<found::kNomodeset>(out);
    if (ValueOf(line.text, "amdgpu.cwsr_enable") == 0) Report<found::kCwsrOff>(out);
    CheckTakingParameters(view, line.text, out);
    if (out.empty()) out.Ok("no parameter on the kernel's command line that hurts");
}

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
        Report<found::kGpuRocmTooOld>(out, read);
    } else if (*kernel >= kFixed) {
        Report<found::kGpuKernelFine>(out, read, *kernel >= kGoodKernel ? " (known good)" : "");
    } else if (rocm && *rocm >= kNewRocm) {
        Report<found::kGpuKernelHangs>(out, read, "");
    } else {
        // Such a kernel is harmless if ROCm is absent or was not read.
        ReportAs<found::kGpuKernelHangs>(kNote, out, read,
                                         "with ROCm 7 or newer (not with Vulkan), ");
    }
}

void RunGpuRocm(HostView& view, Findings& out) {
    // For each ROCm release, the oldest mainline kernel whose amdgpu driver AMD tests it with
    // (AMD's compatibility matrix). Older kernels need that release's amdgpu-dkms.
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
        return Report<found::kRocmKernelOld>(out, read, pair.kernel.part[0], pair.kernel.part[1]);
    }
    Report<found::kRocmOld>(out, read);
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
        Report<found::kFirmwareBroken>(out, package, kGood);
    } else if (halo && date < kOldForHalo) {
        Report<found::kFirmwareOldHalo>(out, package, kGood);
    } else if (date < 20240101) {
        Report<found::kFirmwareOld>(out, package);
    } else {
        Report<found::kFirmwareFine>(out, package, halo ? fmt::format("{} or newer", kGood) : "");
    }
}

}  // namespace weft::doctor::checks
