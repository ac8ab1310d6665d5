#include "doctor/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "doctor/facts.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"

namespace weft::doctor {
namespace {

constexpr std::string_view kVendor = "1002";

struct UnifiedGpu {
    std::string_view id, target;  // PCI id
};
constexpr UnifiedGpu kUnifiedGpus[] = {{"1586", "gfx1151"}, {"150e", "gfx1150"},
                                       {"1114", "gfx1152"}, {"15bf", "gfx1103"},
                                       {"1900", "gfx1103"}, {"1681", "gfx1035"}};

// Sets the target of a GPU by its PCI id, "1586".
void SetTarget(AmdGpu& gpu, std::string_view id, const std::string& other) {
    const auto known = std::ranges::find(kUnifiedGpus, id, &UnifiedGpu::id);
    gpu.unified = known != std::end(kUnifiedGpus);
    gpu.target = gpu.unified ? std::string(known->target) : other;
}

// "gfx_target_version 110501" -> "gfx1151": major, minor and stepping have two digits each; the
// stepping is printed in hexadecimal.
std::string TargetOf(HostView& view) {
    constexpr const char* kNodes = "sys/class/kfd/kfd/topology/nodes";
    for (const std::string& node : Numbered(view, kNodes, "")) {
        const std::string properties = view.Text(std::string(kNodes) + "/" + node + "/properties");
        const auto version = NumberAfter(properties, "gfx_target_version ");
        if (!version || *version < 10000 || *version > 999999) continue;
        const int v = static_cast<int>(*version);
        return fmt::format("gfx{}{}{:x}", v / 10000, v / 100 % 100, v % 100);
    }
    return "";
}

std::vector<AmdGpu> ReadGpus(HostView& view) {
    std::vector<AmdGpu> gpus;
    const std::string target = TargetOf(view);
    constexpr const char* kFolder = "sys/class/drm";
    for (const std::string& card : Numbered(view, kFolder, "card")) {
        const std::string path = fmt::format("{}/{}/device", kFolder, card);
        const std::string vendor = view.Text(path + "/vendor"), id = view.Text(path + "/device");
        if (vendor != "0x1002") continue;
        AmdGpu gpu;
        gpu.card = card;
        gpu.vram_bytes = view.Number(path + "/mem_info_vram_total").value_or(0);
        gpu.gtt_bytes = view.Number(path + "/mem_info_gtt_total").value_or(0);
        SetTarget(gpu, id.substr(std::min<size_t>(2, id.size())), target);
        gpus.push_back(std::move(gpu));
    }
    if (!gpus.empty()) return gpus;
    const Reading cpu = view.Read("proc/cpuinfo");
    const bool named = Contains(cpu.text, "RYZEN AI MAX") || Contains(cpu.text, "Ryzen AI Max");
    for (const PciDevice& device : PciDevices(view)) {
        const bool halo = Contains(device.name, "Strix Halo") || Contains(device.name, "8060S") ||
                          Contains(device.name, "8050S");
        if (!device.IsGpu() || (device.vendor != kVendor && !halo)) continue;
        AmdGpu gpu;
        SetTarget(gpu, halo ? "1586" : device.device, target);
        gpus.push_back(std::move(gpu));
    }
    // Without PCI data in the snapshot, the processor's name implies its GPU.
    if (gpus.empty() && !view.Complete() && (named || !target.empty())) {
        gpus.emplace_back();
        SetTarget(gpus.back(), named ? "1586" : "", target);
    }
    return gpus;
}

// The version of the first of these libraries that programs find.
std::string FirstVersion(HostView& view, std::initializer_list<const char*> names, bool& known) {
    for (const char* name : names) {
        const Reading found = view.Probe(std::string("library/") + name);
        known = known || found.found();
        if (found.found() && Trim(found.text) != "0") return std::string(Trim(found.text));
    }
    return "";
}

NativeDriver ReadCuda(HostView& view) {
    NativeDriver cuda;
    cuda.library = FirstVersion(view, {"libcuda.so.1"}, cuda.known);
    cuda.compiler = FirstVersion(view, {"libnvrtc.so.13", "libnvrtc.so.12"}, cuda.known);
    return cuda;
}

NativeDriver ReadHip(HostView& view) {
    NativeDriver hip;
    hip.library =
        FirstVersion(view, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}, hip.known);
    hip.compiler =
        FirstVersion(view, {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"}, hip.known);
    return hip;
}

}  // namespace

const NativeDriver& Cuda(HostView& view) {
    return view.Derived(ReadCuda);
}

const NativeDriver& Hip(HostView& view) {
    return view.Derived(ReadHip);
}

bool NeedsHip(const AmdGpu& gpu) {
    return gpu.target == "gfx908" || gpu.target == "gfx90a" || gpu.target.starts_with("gfx94") ||
           gpu.target.starts_with("gfx95");
}

const std::vector<AmdGpu>& AmdGpus(HostView& view) {
    return view.Derived(ReadGpus);
}

const char* TtmModule(HostView& view) {
    return view.List("sys/module/amdttm").empty() ? "ttm" : "amdttm";
}

std::string BorrowForModels(HostView& view) {
    constexpr double kForSystem = 8.0 * (1 << 30);
    double all = MemInfo(view, "MemTotal").value_or(0);
    for (const AmdGpu& gpu : AmdGpus(view)) all += gpu.unified ? gpu.vram_bytes : 0;
    if (all <= 0) {
        return fmt::format(
            "{}.pages_limit on the kernel's command line: the memory less 8 GiB, in pages of 4 KiB",
            TtmModule(view));
    }
    const double room = std::max(all / 2, all - kForSystem);
    std::string fix =
        AddParameter(view, fmt::format("{0}.pages_limit={1:.0f} {0}.page_pool_size={1:.0f}",
                                       TtmModule(view), room / 4096));
    if (Contains(view.Text("proc/cmdline"), "amdgpu.gttsize=")) {
        fix +=
            "; amdgpu.gttsize is not needed beside it: " + RemoveParameter(view, "amdgpu.gttsize");
    }
    return fix;
}

std::string RocmVersion(HostView& view) {
    for (const char* path : {"opt/rocm/.info/version", "opt/rocm/.info/version-dev"}) {
        const std::string text = view.Text(path);
        if (!text.empty()) return text.substr(0, text.find('-'));
    }
    return "";
}

}  // namespace weft::doctor
