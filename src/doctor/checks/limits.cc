// Checks limits that a setting or another program imposes on this host: power and clocks, processor
// time, and memory.
#include <cmath>

#include "doctor/checks/checks.h"
#include "hw/control_group.h"

namespace weft::doctor::checks {
namespace {

constexpr double kGhz = 1e-6;  // per kHz of cpufreq

// ---- power-limits: clocks and power that a setting keeps below the hardware's limits.

void CheckGpuLevels(HostView& view, Findings& out) {
    for (const std::string& card : Numbered(view, "sys/class/drm", "card")) {
        const std::string path =
            fmt::format("sys/class/drm/{}/device/power_dpm_force_performance_level", card);
        const std::string level = view.Text(path);
        if (IsOneOf(level, "low profile_min_sclk profile_min_mclk")) {
            Report<found::kGpuLevelLow>(out, path, level);
        }
    }
}

// The firmware's profile (the kernel's Documentation/ABI/testing/sysfs-platform_profile).
void CheckPlatformProfile(HostView& view, Findings& out) {
    const std::string profile = view.Text("sys/firmware/acpi/platform_profile");
    if (!IsOneOf(profile, "low-power quiet cool")) return;
    ReportAs<found::kPlatformProfile>(profile == "low-power" ? kWarn : kNote, out, profile);
}

void CheckClockCap(HostView& view, Findings& out) {
    constexpr double kLeastShare = 0.9;
    const std::string cpus = "sys/devices/system/cpu/";
    for (const std::string& name : Numbered(view, cpus + "cpufreq", "policy")) {
        const std::string policy = cpus + "cpufreq/" + name;
        const auto most = view.Number(policy + "/scaling_max_freq");
        const auto possible = view.Number(policy + "/cpuinfo_max_freq");
        if (!most || !possible || *most <= 0 || *most >= kLeastShare * *possible) continue;
        return Report<found::kClockCap>(out, name, *most * kGhz, *possible * kGhz, *possible);
    }
    const auto percent = view.Number(cpus + "intel_pstate/max_perf_pct");
    if (percent && *percent > 0 && *percent < 100 * kLeastShare) {
        return Report<found::kPerformanceCap>(out, *percent);
    }
    for (const auto& [file, off, on] :
         {std::tuple("intel_pstate/no_turbo", 1, 0), std::tuple("cpufreq/boost", 0, 1)}) {
        if (view.Text(cpus + file) != std::to_string(off)) continue;
        return Report<found::kNoTurbo>(out, fmt::format("{} = {}", file, off),
                                       fmt::format("/{}{}", cpus, file), on);
    }
}

// The facts of one GPU in `nvidia-smi -q`.
struct NvidiaGpu {
    std::string name;
    std::vector<std::string> reasons;  // active reasons for lower clocks
    double clock_mhz = 0, busy_percent = 0, limit_watts = 0, usual_watts = 0;
};

std::vector<NvidiaGpu> ParseNvidia(std::string_view text) {
    constexpr std::array<std::string_view, 5> kReasons = {
        "SW Power Cap", "HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown",
        "SW Thermal Slowdown"};
    std::vector<NvidiaGpu> gpus;
    std::string_view section;  // the last line without a value
    for (std::string_view line : Lines(text)) {
        if (line.starts_with("GPU ")) gpus.emplace_back();
        if (gpus.empty()) continue;
        NvidiaGpu& gpu = gpus.back();
        const size_t colon = std::min(line.find(" : "), line.size());
        const std::string_view key = Trim(line.substr(0, colon));
        const std::string_view value = Trim(line.substr(std::min(colon + 3, line.size())));
        const double number = LeadingNumber(value).value_or(0);
        if (colon == line.size()) section = key;
        if (key == "Product Name") gpu.name = value;
        if (value == "Active" && IsIn(kReasons, key)) gpu.reasons.emplace_back(key);
        if (section == "Clocks" && key == "SM") gpu.clock_mhz = number;
        if (section == "Utilization" && IsOneOf(key, "Gpu GPU")) gpu.busy_percent = number;
        if (key == "Power Limit" || key == "Current Power Limit") gpu.limit_watts = number;
        if (key == "Default Power Limit") gpu.usual_watts = number;
    }
    return gpus;
}

void CheckNvidia(HostView& view, Findings& out) {
    // A GB10 whose power supply was not recognized computes at this clock until it loses its power.
    constexpr double kStuckMhz = 507, kLeastBusyPercent = 20, kLeastShare = 0.9;
    const Reading reading = CommandLike(view, "nvidia-smi -q");
    if (!reading.found()) return;
    for (const NvidiaGpu& gpu : ParseNvidia(reading.text)) {
        const std::string name = gpu.name.empty() ? "NVIDIA's GPU" : gpu.name;
        if (Contains(gpu.name, "GB10") && gpu.busy_percent >= kLeastBusyPercent &&
            gpu.clock_mhz > 0 && gpu.clock_mhz <= 1.2 * kStuckMhz) {
            Report<found::kGb10Stuck>(out, name, gpu.clock_mhz, gpu.busy_percent);
        } else if (!gpu.reasons.empty() && gpu.reasons.front() != "SW Power Cap") {
            Report<found::kGpuSlowed>(out, name, Joined(gpu.reasons));
        } else if (gpu.limit_watts > 0 && gpu.limit_watts < kLeastShare * gpu.usual_watts) {
            Report<found::kGpuPowerLimit>(out, name, gpu.limit_watts, gpu.usual_watts);
        }
    }
}

// ---- cgroup-limits: limits of a container, a service or Slurm.

struct Limit {
    std::string file;  // the file that states the limit
    double value = 0;
};

void TakeLeast(std::optional<Limit>& least, const std::string& file, std::optional<double> value) {
    if (value && *value > 0 && (!least || *value < least->value)) least = Limit{file, *value};
}

// The smallest memory limit, in bytes, of the process's control group and of the groups above it.
std::optional<Limit> MemoryLimit(HostView& view, std::string_view membership) {
    std::optional<Limit> least;
    for (const ControlGroup& group : ControlGroups("sys/fs/cgroup", membership, "memory")) {
        if (!group.version2) {
            const std::string file = group.folder + "/memory.limit_in_bytes";
            TakeLeast(least, file, view.Number(file));
            continue;
        }
        for (const char* name : {"/memory.max", "/memory.high"}) {
            TakeLeast(least, group.folder + name, view.Number(group.folder + name));
        }
    }
    return least;
}

// The smallest quota of processor time among these groups, in processors.
std::optional<Limit> ProcessorLimit(HostView& view, std::string_view membership) {
    std::optional<Limit> least;
    for (const ControlGroup& group : ControlGroups("sys/fs/cgroup", membership, "cpu")) {
        const std::string file = group.folder + (group.version2 ? "/cpu.max" : "/cpu.cfs_quota_us");
        const std::string text = view.Text(file);  // "200000 100000"; version 1: "-1": none
        const auto words = Words(text);
        const double quota = words.empty() ? 0 : Number(words[0]).value_or(0);
        const double own = words.size() > 1 ? Number(words[1]).value_or(0) : 0;
        const double period =
            group.version2 ? own : view.Number(group.folder + "/cpu.cfs_period_us").value_or(0);
        if (period > 0) TakeLeast(least, file, quota / period);
    }
    return least;
}

// ---- memory-taken: memory that models do not get.

// "size                            4    34359738368" in ZFS's arcstats.
std::optional<double> ZfsCache(HostView& view) {
    const Reading stats = view.Read("proc/spl/kstat/zfs/arcstats");
    for (const auto& words : WordLines(stats.text)) {
        if (words.size() == 3 && words[0] == "size") return Number(words[2]);
    }
    return {};
}

// Nodes whose processors have no memory of their own.
std::vector<std::string> BareNodes(HostView& view) {
    std::vector<std::string> bare;
    for (const std::string& node : Numbered(view, "sys/devices/system/node", "node")) {
        const std::string folder = "sys/devices/system/node/" + node;
        const Reading memory = view.Read(folder + "/meminfo");
        const auto total = NumberAfter(memory.text, "MemTotal:");
        const bool computes = !view.Text(folder + "/cpulist").empty();
        if (total && *total <= 0 && computes) bare.push_back(node);
    }
    return bare;
}

}  // namespace

void RunPowerLimits(HostView& view, Findings& out) {
    CheckGpuLevels(view, out);
    CheckPlatformProfile(view, out);
    CheckClockCap(view, out);
    CheckNvidia(view, out);
    const std::string first = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    if (out.empty() && !view.Text(first).empty()) out.Ok("no cap of power or clocks");
}

void RunCgroupLimits(HostView& view, Findings& out) {
    const Reading groups = view.Read("proc/self/cgroup");
    const auto memory = MemoryLimit(view, groups.text);
    const auto processors = ProcessorLimit(view, groups.text);
    const auto ram = MemInfo(view, "MemTotal");
    const auto cpus = Number(view.Probe("cpus").text);
    if (memory && ram && memory->value < *ram * 0.95) {
        const bool soft = memory->file.ends_with("memory.high");
        Report<found::kCgroupMemory>(out, memory->file, SizeText(memory->value), SizeText(*ram),
                                     soft ? "stops" : "kills", soft ? "MemoryHigh=" : "MemoryMax=");
    }
    if (processors && cpus && processors->value < *cpus * 0.99) {
        Report<found::kCgroupCpu>(out, processors->file, processors->value, *cpus,
                                  std::max(0.0, std::ceil(processors->value) - 1));
    }
    const auto all = ControlGroups("sys/fs/cgroup", groups.text, "memory");
    const bool read = std::ranges::any_of(
        all, [&](const ControlGroup& group) { return view.Has(group.folder + "/memory.max"); });
    if (out.empty() && (memory || processors || read)) {
        out.Ok("no limit of memory or processor time");
    }
}

void RunMemoryTaken(HostView& view, Findings& out) {
    const auto total = MemInfo(view, "MemTotal");
    const auto cache = ZfsCache(view);
    if (cache && total && *cache > *total / 4) {
        Report<found::kZfsCache>(out, SizeText(*cache), SizeText(*total), *total / 8);
    }
    if (view.Text("proc/sys/vm/overcommit_memory") == "2") {
        const auto limit = MemInfo(view, "CommitLimit");
        Report<found::kOvercommit>(out,
                                   limit ? fmt::format(" (CommitLimit {})", SizeText(*limit)) : "",
                                   SetSysctl(view, "vm.overcommit_memory=0"));
    }
    if (const auto bare = BareNodes(view); !bare.empty()) {
        Report<found::kNodeWithoutMemory>(out, Joined(bare));
    }
    const std::string overcommit = view.Text("proc/sys/vm/overcommit_memory");
    if (out.empty() && !overcommit.empty()) ReportOk(out, "overcommit_memory = {}", overcommit);
}

}  // namespace weft::doctor::checks
