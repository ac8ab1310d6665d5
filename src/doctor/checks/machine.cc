// Checks processor, memory, clock and IOMMU settings, temperatures, and ranks on one host.
#include <cmath>

#include "doctor/checks/checks.h"
#include "doctor/gpu.h"

namespace weft::doctor::checks {
namespace {

// ---- cpu-governor: clock speed of a core when a message wakes it.

constexpr std::string_view kCpus = "sys/devices/system/cpu/";

// Folders of clock settings: one per policy, or (under another name) one per core.
std::vector<std::string> Policies(HostView& view) {
    std::vector<std::string> folders;
    const std::string cpus(kCpus);
    for (const std::string& name : Numbered(view, cpus + "cpufreq", "policy")) {
        folders.push_back(cpus + "cpufreq/" + name);
    }
    if (!folders.empty() || view.Complete()) return folders;
    for (const std::string& name : Numbered(view, cpus.substr(0, cpus.size() - 1), "cpu")) {
        if (view.Has(cpus + name + "/cpufreq")) folders.push_back(cpus + name + "/cpufreq");
    }
    return folders;
}

std::string ClockText(HostView& view, const std::string& policy) {
    const auto least = Number(view.Text(policy + "/scaling_min_freq"));
    const auto most = Number(view.Text(policy + "/cpuinfo_max_freq"));
    if (!least || !most || *most <= 0) return "";
    return fmt::format(": an idle core starts at {:.1f} of {:.1f} GHz", *least * 1e-6,
                       *most * 1e-6);
}

// ---- swap: memory in swap.

// Bytes in use in /proc/swaps (proc(5): file name, type, size, used in KiB, priority) on zram,
// which is memory; Fedora and Arch swap to it by default. 0: not read.
double CompressedMemory(HostView& view) {
    const Reading swaps = view.Read("proc/swaps");
    double bytes = 0;
    for (std::string_view line : Lines(swaps.text)) {
        const auto words = Words(line);
        if (words.size() < 4 || !words[0].starts_with("/dev/zram")) continue;
        bytes += Number(words[3]).value_or(0) * 1024;
    }
    return bytes;
}

// ---- iommu: address translation and access control between cards and memory.

// Type of the first IOMMU group that has one: "DMA-FQ", "identity"; "": none was read.
std::string GroupType(HostView& view) {
    constexpr const char* kGroups = "sys/kernel/iommu_groups";
    for (const std::string& group : Numbered(view, kGroups, "")) {
        std::string type = view.Text(fmt::format("{}/{}/type", kGroups, group));
        if (!type.empty()) return type;
    }
    return "";
}

// "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ ..." on a bridge.
bool RedirectsPeers(std::string_view lspci) {
    return std::ranges::any_of(Lines(lspci), [](std::string_view line) {
        return Contains(line, "ACSCtl:") && Contains(line, "ReqRedir+");
    });
}

// A GPU and another GPU or fast network card below one PCIe switch that sends their requests to the
// root.
struct RedirectedPair {
    const PciDevice *gpu, *other, *bridge;
};
std::optional<RedirectedPair> PairBelowSwitch(const std::vector<PciDevice>& devices) {
    for (const PciDevice& gpu : devices) {
        const PciDevice* slot = SlotOf(gpu, devices);
        if (!gpu.IsComputeGpu() || slot == nullptr || !slot->redirects) continue;
        for (const PciDevice& other : devices) {
            const bool card = other.IsComputeGpu() || (other.fabric && !other.is_virtual);
            if (!card || other.bridges.empty() || IsIn(other.bridges, slot->address)) continue;
            const bool one_switch =
                std::ranges::any_of(gpu.bridges, [&](const std::string& bridge) {
                    return IsIn(other.bridges, bridge) && bridge != other.bridges.front();
                });
            if (one_switch) return RedirectedPair{&gpu, &other, slot};
        }
    }
    return {};
}

// ---- heat: temperatures of cards and GPUs against their own limits.

// hwmon reports thousandths of a degree; nullopt: not a temperature.
std::optional<double> Degrees(HostView& view, const std::string& path) {
    const auto value = Number(view.Text(path));
    if (!value || *value < -50e3 || *value > 250e3) return {};
    return *value / 1000;
}

// ---- measured: a ping-pong and an all-reduce on this host.

struct Times {
    double small_us = 0, large_us = 0, reduce_us = 0;  // 64 B, 8 KiB, all-reduce of 8 KiB
};

// Lines "one_way 64 0.21 0.35" and "all_reduce 8192 0.9 1.4".
Times ParseTimes(std::string_view text) {
    Times times;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.size() != 4) continue;
        const double us = Number(words[2]).value_or(0);
        if (words[0] == "all_reduce") times.reduce_us = us;
        if (words[0] == "one_way" && words[1] == "64") times.small_us = us;
        if (words[0] == "one_way" && words[1] == "8192") times.large_us = us;
    }
    return times;
}

}  // namespace

void RunCpuGovernor(HostView& view, Findings& out) {
    // The hardware chooses the clock; "powersave" then means "automatic".
    constexpr std::array<std::string_view, 3> kAutomatic = {"intel_pstate", "amd-pstate-epp",
                                                            "amd_pstate_epp"};
    const std::vector<std::string> policies = Policies(view);
    for (const std::string& policy : policies) {
        const std::string governor = view.Text(policy + "/scaling_governor");
        const std::string driver = view.Text(policy + "/scaling_driver");
        const std::string preference = view.Text(policy + "/energy_performance_preference");
        if (governor.empty()) continue;
        const std::string name = policy.substr(kCpus.size()), clock = ClockText(view, policy);
        const std::string driver_text = driver.empty() ? "unknown" : driver;
        if (preference == "power" || preference == "balance_power") {
            return Report<found::kEnergyPreference>(view, out, name, governor, driver_text, clock,
                                                    preference);
        }
        // Only hardware-controlled clocks have a preference.
        if (governor == "performance" || IsIn(kAutomatic, driver) || !preference.empty()) continue;
        return ReportAs<found::kGovernor>(
            governor == "powersave" && !driver.empty() ? Severity::kWarn : Severity::kNote, view,
            out, name, governor, driver_text, clock);
    }
    if (policies.empty()) return;
    ReportOk(out, "governor {} on {} policies", view.Text(policies.front() + "/scaling_governor"),
             policies.size());
}

// ---- numa-balancing, huge-pages: settings of the kernel's memory management.

void RunNumaBalancing(HostView& view, Findings& out) {
    const std::string state = view.Text("proc/sys/kernel/numa_balancing");
    const size_t nodes = Numbered(view, "sys/devices/system/node", "node").size();
    if (state.empty()) return;
    // The kernel's default on such machines: worth a note, not a fault.
    ReportAs<found::kNumaBalancing>(nodes < 2 || state == "0" ? Severity::kOk : Severity::kNote,
                                    view, out, state, nodes,
                                    SetSysctl(view, "kernel.numa_balancing=0"));
}

void RunHugePages(HostView& view, Findings& out) {
    const Reading info = view.Read("proc/meminfo");
    const auto count = [&](std::string_view name) {
        return std::max(0.0, NumberAfter(info.text, name).value_or(0));
    };
    const double unused = count("HugePages_Free:") - count("HugePages_Rsvd:");
    const double unused_bytes = unused * MemInfo(view, "Hugepagesize").value_or(0);
    const double total_bytes = MemInfo(view, "MemTotal").value_or(0);
    if (total_bytes > 0 && unused_bytes > total_bytes / 4) {
        Report<found::kHugePagesUnused>(view, out, unused, count("HugePages_Total:"),
                                        SizeText(unused_bytes), SizeText(total_bytes));
    }
    const std::string enabled = view.Text("sys/kernel/mm/transparent_hugepage/enabled");
    if (enabled.empty()) return;
    ReportAs<found::kHugePages>(Contains(enabled, "[never]") ? Severity::kWarn : Severity::kOk,
                                view, out, enabled);
}

void RunSwap(HostView& view, Findings& out) {
    constexpr double kGib = 1 << 30;
    const auto total = MemInfo(view, "SwapTotal"), free = MemInfo(view, "SwapFree");
    if (!total || !free) return;
    if (*total <= 0) return out.Ok("no swap");
    const double in_memory = std::min(CompressedMemory(view), *total - *free);
    const double used = *total - *free - in_memory;
    const std::string zram =
        in_memory > 0 ? fmt::format(", and {} compressed in memory (zram)", SizeText(in_memory))
                      : "";
    const std::string size = SizeText(*total), used_size = SizeText(used);
    if (used >= kGib && !view.Read("proc/swaps").found() && !Cure(view, "swaps-to-zram").empty()) {
        return Report<found::kSwapZramUnread>(view, out, size, used_size, zram);
    }
    ReportAs<found::kSwapUsed>(used < kGib ? Severity::kOk : Severity::kWarn, view, out, size,
                               used_size, zram, used / 2e9);
}

// ---- clock-sync: synchronization of the host's clock with a time server.

void RunClockSync(HostView& view, Findings& out) {
    // "NTPSynchronized=yes"; in a handmade snapshot from the plain output of timedatectl.
    const Reading state = view.Command("timedatectl show --property=NTPSynchronized");
    std::string value(After(state.text, "NTPSynchronized="));
    for (const char* command : {"timedatectl", "timedatectl status"}) {
        if (state.found() || view.Complete()) break;
        const std::string text = view.Command(command).text;
        for (const char* key : {"System clock synchronized:", "NTP synchronized:"}) {
            if (value.empty()) value = After(text, key);
        }
    }
    if (value == "yes") out.Ok("NTPSynchronized=yes");
    if (value == "no") Report<found::kClockFree>(view, out);
}

void RunIommu(HostView& view, Findings& out) {
    const bool rdma = HasRdma(view), gpu = !AmdGpus(view).empty();
    const std::vector<PciDevice> devices = PciDevices(view);
    const auto pair = PairBelowSwitch(devices);
    if (pair) {
        Report<found::kAcsBelowSwitch>(view, out, pair->gpu->Text(), pair->other->Text(),
                                       pair->bridge->address);
    }
    if (!rdma && !gpu) return;
    const Reading parameters = view.Read("proc/cmdline");
    const std::string type = GroupType(view);
    const std::string& line = parameters.text;
    const bool passes = Contains(line, "iommu=pt") || Contains(line, "iommu.passthrough=1");
    const bool off = Contains(line, "amd_iommu=off") || Contains(line, "intel_iommu=off") ||
                     Contains(line, "iommu=off");
    if (type.starts_with("DMA") && !passes && !off) {
        Report<found::kIommuTranslates>(
            view, out,
            rdma ? "the IOMMU translates each 4 KiB of a transfer: 5 to 30 % of bandwidth, and up "
                   "to 1 us a message"
                 : "the IOMMU translates each access of the GPU to memory: 2 to 6 % of token speed "
                   "on APUs");
    }
    const Reading lspci = CommandLike(view, "lspci -vv");
    if (!pair && rdma && gpu && lspci.found() && RedirectsPeers(lspci.text)) {
        Report<found::kAcsRedirects>(view, out);
    }
    if (!out.empty() || (!parameters.found() && type.empty())) return;
    ReportOk(out, "IOMMU {}",
             off            ? "off"
             : passes       ? "passing through"
             : type.empty() ? "not asked for"
                            : "of type " + type);
}

void RunHeat(HostView& view, Findings& out) {
    constexpr const char* kSensors = "sys/class/hwmon";
    constexpr size_t kMaxSensors = 64;
    constexpr double kMarginDegrees = 3;
    // Driver names under hwmon.
    constexpr std::array<std::string_view, 8> kCards = {"mlx5", "mlx4",  "bnxt_en", "ice",
                                                        "i40e", "ixgbe", "cxgb4",   "atlantic"};
    constexpr std::array<std::string_view, 4> kGpus = {"amdgpu", "nouveau", "xe", "i915"};
    constexpr std::string_view kEnd = "_input";
    size_t sensors = 0;
    for (const std::string& device : Numbered(view, kSensors, "hwmon")) {
        const std::string folder = fmt::format("{}/{}", kSensors, device);
        const std::string name = view.Text(folder + "/name");
        const bool card = IsIn(kCards, name);
        if (!card && !IsIn(kGpus, name)) continue;
        for (const std::string& file : view.List(folder)) {
            if (!file.starts_with("temp") || !file.ends_with(kEnd)) continue;
            if (++sensors > kMaxSensors) return;
            const std::string path = folder + "/" + file.substr(0, file.size() - kEnd.size());
            const auto now = Degrees(view, path + "_input"), limit = Degrees(view, path + "_crit");
            if (!now || !limit || *limit < 40) continue;
            const std::string label = view.Text(path + "_label");
            const Severity severity = *now >= *limit                    ? Severity::kFail
                                      : *now >= *limit - kMarginDegrees ? Severity::kWarn
                                                                        : Severity::kOk;
            const std::string sensor = name + (label.empty() ? "" : " " + label);
            if (card) {
                ReportAs<found::kCardHeat>(severity, view, out, sensor, *now,
                                           *limit - kMarginDegrees);
            } else {
                ReportAs<found::kGpuHeat>(severity, view, out, sensor, *now,
                                          *limit - kMarginDegrees);
            }
        }
    }
}

void RunMeasured(HostView& view, Findings& out) {
    // Upper limits for any idle machine; virtual machines take several times as long.
    struct Limit {
        const char* transport;
        double small_us, large_us;
    };
    constexpr Limit kLimits[] = {{"shm", 5, 20}, {"tcp", 60, 80}};
    const double factor = IsVirtualMachine(view) ? 4 : 1;
    for (const Limit& limit : kLimits) {
        const Reading measured = view.Probe(std::string("measure/") + limit.transport);
        if (measured.refused()) {
            Report<found::kMeasuredFailed>(view, out, limit.transport, measured.text);
            continue;
        }
        const Times times = measured.found() ? ParseTimes(measured.text) : Times{};
        if (times.small_us <= 0) continue;
        const double small = limit.small_us * factor, large = limit.large_us * factor;
        const bool fine = times.small_us <= small && times.large_us <= large;
        const auto cpus = Number(view.Probe("cpus").text);
        const bool shared = cpus && *cpus < 2;
        ReportAs<found::kMeasured>(
            fine ? Severity::kOk : Severity::kNote, view, out, limit.transport, times.small_us,
            times.large_us, times.reduce_us, small, large,
            shared ? "two ranks take turns on one processor"
                   : "ranks of this host wait this long for each other, twice in each layer",
            shared
                ? ""
                : "look for other programs (top), cpu-governor and cpu-throttling; measure again "
                  "on an idle machine");
    }
}

}  // namespace weft::doctor::checks
