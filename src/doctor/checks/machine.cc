// Checks settings and limits of processor, memory and clock.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {

// ---- cpu-governor: Clock speed of a core when a message wakes it.

namespace {

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

// The hardware chooses the clock; "powersave" then means "automatic".
bool HardwareDecides(std::string_view driver) {
    return driver == "intel_pstate" || driver == "amd-pstate-epp" || driver == "amd_pstate_epp";
}

std::string ClockText(HostView& view, const std::string& policy) {
    const auto least = Number(view.Text(policy + "/scaling_min_freq"));
    const auto most = Number(view.Text(policy + "/cpuinfo_max_freq"));
    if (!least || !most || *most <= 0) return "";
    return fmt::format(": a core that was idle starts at {:.1f} of {:.1f} GHz", *least * 1e-6,
                       *most * 1e-6);
}

}  // namespace

void RunCpuGovernor(HostView& view, Findings& out) {
    const std::vector<std::string> policies = Policies(view);
    for (const std::string& policy : policies) {
        const std::string name = policy.substr(kCpus.size());
        const std::string governor = view.Text(policy + "/scaling_governor");
        const std::string driver = view.Text(policy + "/scaling_driver");
        const std::string preference = view.Text(policy + "/energy_performance_preference");
        if (governor.empty()) continue;
        std::string read = fmt::format("{}: governor {}, driver {}", name, governor,
                                       driver.empty() ? "not known" : driver);
        if (!preference.empty()) read += fmt::format(", energy preference {}", preference);
        const std::string why = fmt::format(
            "clocks rise over 1 to 50 ms, a token's step takes less{}", ClockText(view, policy));
        if (preference == "power" || preference == "balance_power") {
            return out.Warn(read, "energy preference performance or balance_performance", why,
                            "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/"
                            "energy_performance_preference");
        }
        // Only hardware-controlled clocks have a preference.
        if (governor == "performance" || HardwareDecides(driver) || !preference.empty()) continue;
        const std::string fix = Cure(view, "governor");
        if (governor == "powersave" && !driver.empty())
            return out.Warn(read, "governor performance", why, fix);
        return out.Note(read, "governor performance", why, fix);
    }
    if (!policies.empty()) {
        out.Ok(fmt::format("governor {} on {} policies",
                           view.Text(policies.front() + "/scaling_governor"), policies.size()));
    }
}

// ---- cpu-throttling: Cores slowed down by heat.

void RunCpuThrottling(HostView& view, Findings& out) {
    constexpr const char* kPath =
        "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
    const auto first = Number(view.Text(kPath));
    if (!first) return;
    const Reading again = view.Later(kPath);
    const double now = again.found() ? Number(again.text).value_or(*first) : *first;
    const std::string read = fmt::format("the package was throttled {} times since boot", now);
    if (now > *first) {
        return out.Warn(read + fmt::format(", {} of them just now", now - *first),
                        "no throttling while it was watched",
                        "a hot processor runs at half its clock: all ranks wait for this one",
                        "clean the fans, more air, a lower power limit");
    }
    out.Ok(read);
}

// ---- cgroup-limits: Limits of a container or a service.

namespace {

// The cgroup v2 of this process: "0::/system.slice/weft.service".
std::string GroupOf(HostView& view) {
    const Reading groups = view.Read("proc/self/cgroup");
    if (!groups.found()) return "";
    const std::string group(After(groups.text, "0::"));
    return group.empty() || group == "/" ? "" : group;
}

}  // namespace

void RunCgroupLimits(HostView& view, Findings& out) {
    const std::string group = GroupOf(view);
    const auto ram = MemInfo(view, "MemTotal");
    std::string folder = "sys/fs/cgroup" + group;
    // a container sees its own group there
    if (!view.Has(folder + "/memory.max")) folder = "sys/fs/cgroup";
    const auto most = Number(view.Text(folder + "/memory.max"));
    const std::string quota_text = view.Text(folder + "/cpu.max");  // "200000 100000"
    const auto quota = Words(quota_text);
    const auto cpus =
        Number(view.Text("probe/cpus").empty() ? view.Probe("cpus").text : view.Text("probe/cpus"));
    if (most && ram && *most < *ram * 0.95) {
        out.Note(fmt::format("memory.max of /{}: {} of the machine's {}", folder, SizeText(*most),
                             SizeText(*ram)),
                 "no limit",
                 fmt::format("a model above {} ends with 'Killed', at the worst moment",
                             SizeText(*most)),
                 "docker run --memory, or MemoryMax= of the unit");
    }
    if (quota.size() == 2 && quota[0] != "max") {
        const double cores = Number(quota[0]).value_or(0) / Number(quota[1]).value_or(100000);
        if (cores > 0 && cpus && cores < *cpus * 0.99) {
            out.Warn(
                fmt::format("cpu.max of /{}: {:.1f} of {} processors", folder, cores, *cpus),
                "no quota, or fewer processors (--cpuset-cpus)",
                "a quota stops all threads for tens of ms in each tenth of a second: every "
                "rank waits for this one",
                fmt::format("docker run --cpuset-cpus 0-{0:.0f} in place of --cpus; of a unit: "
                            "AllowedCPUs=0-{0:.0f} in place of CPUQuota=",
                            std::max(0.0, std::ceil(cores) - 1)));
        }
    }
    if (out.empty() && (most || !quota.empty() || view.Has(folder + "/memory.max"))) {
        out.Ok("no limit of memory or processor time");
    }
}

// ---- numa-balancing: Migration of pages between NUMA nodes by the kernel.

void RunNumaBalancing(HostView& view, Findings& out) {
    const std::string state = view.Text("proc/sys/kernel/numa_balancing");
    const size_t nodes = Numbered(view, "sys/devices/system/node", "node").size();
    if (state.empty()) return;
    const std::string read = fmt::format("kernel.numa_balancing = {}, {} nodes", state, nodes);
    if (nodes < 2 || state == "0") return out.Ok(read);
    // The kernel's default on such machines: worth a note, not a fault.
    out.Note(read, "0 on a machine of several nodes",
             "the kernel unmaps pages to see who uses them: each touch is then a fault of 1 to 5 "
             "us, and pinned memory is scanned for nothing",
             SetSysctl(view, "kernel.numa_balancing=0"));
}

// ---- huge-pages: Transparent huge pages, which extend the reach of the TLB for weights.

void RunHugePages(HostView& view, Findings& out) {
    const std::string enabled = view.Text("sys/kernel/mm/transparent_hugepage/enabled");
    if (enabled.empty()) return;
    const std::string read = fmt::format("transparent_hugepage/enabled: {}", enabled);
    if (!Contains(enabled, "[never]")) return out.Ok(read, "madvise or always");
    out.Warn(read, "madvise or always",
             "with pages of 4 KiB a TLB of 2,048 entries reaches 8 MiB in place of 4 GiB: "
             "reading weights is 5 to 20 % slower",
             "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled; to keep it: " +
                 AddParameter(view, "transparent_hugepage=madvise"));
}

// ---- swap: Memory in swap.

namespace {

constexpr double kMuch = 1 << 30;

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

// Distributions that set up zram, or may.
bool SwapsToMemory(HostView& view) {
    using enum Distribution;
    const Distribution distribution = DistributionOf(view);
    if (distribution == kDebian) {
        const DebianKind kind = DebianKindOf(view);
        return kind == DebianKind::kPop || kind == DebianKind::kRaspberry;
    }
    return distribution == kFedora || distribution == kOstree || distribution == kArch;
}

}  // namespace

void RunSwap(HostView& view, Findings& out) {
    const auto total = MemInfo(view, "SwapTotal");
    const auto free = MemInfo(view, "SwapFree");
    if (!total || !free) return;
    if (*total <= 0) return out.Ok("no swap");
    const double in_memory = std::min(CompressedMemory(view), *total - *free);
    const double used = *total - *free - in_memory;
    const std::string read = fmt::format(
        "swap {}, of it used {}{}", SizeText(*total), SizeText(used),
        in_memory > 0 ? fmt::format(", and {} compressed in memory (zram)", SizeText(in_memory))
                      : "");
    if (used < kMuch) return out.Ok(read, "less than 1 GiB in use");
    if (!view.Read("proc/swaps").found() && SwapsToMemory(view)) {
        return out.Note(read + "; whether it is memory (zram) was not read",
                        "less than 1 GiB in use on a drive",
                        "nothing, where it is zram, as this distribution has it by default",
                        "cat /proc/swaps");
    }
    out.Warn(read, "less than 1 GiB in use",
             fmt::format("a page that comes back from an NVMe drive takes 100 us, from memory 0.1 "
                         "us; {} of swapped weights cost {:.1f} s the first time",
                         SizeText(used), used / 2e9),
             "sudo swapoff -a && sudo swapon -a (once there is room), and sudo sysctl -w "
             "vm.swappiness=1");
}

// ---- clock-sync: Synchronization of the host's clock with a time server.

namespace {

// "NTPSynchronized=yes"; in a handmade snapshot from the plain output of timedatectl.
std::string SyncState(HostView& view) {
    const Reading state = view.Command("timedatectl show --property=NTPSynchronized");
    if (state.found()) return std::string(Trim(std::string_view(state.text)));
    if (view.Complete()) return {};
    for (const char* words : {"timedatectl", "timedatectl status"}) {
        const std::string text = view.Command(words).text;
        for (const char* key : {"System clock synchronized:", "NTP synchronized:"}) {
            const std::string_view value = After(text, key);
            if (!value.empty()) return "NTPSynchronized=" + std::string(value);
        }
    }
    return {};
}

}  // namespace

void RunClockSync(HostView& view, Findings& out) {
    const std::string read = SyncState(view);
    if (read == "NTPSynchronized=yes") return out.Ok(read);
    if (read != "NTPSynchronized=no") return;
    out.Note(read, "NTPSynchronized=yes",
             "logs and timelines of several hosts don't line up, and certificates look expired "
             "once the clock is far off (deadlines are not concerned)",
             Cure(view, "time-server"));
}

// ---- iommu: Address translation and access control between cards and memory.

namespace {

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
    for (std::string_view line : Lines(lspci)) {
        if (Contains(line, "ACSCtl:") && Contains(line, "ReqRedir+")) return true;
    }
    return false;
}

}  // namespace

void RunIommu(HostView& view, Findings& out) {
    const bool rdma = HasRdma(view);
    const bool gpu = !AmdGpus(view).empty();
    if (!rdma && !gpu) return;
    const Reading parameters = view.Read("proc/cmdline");
    const std::string type = GroupType(view);
    const std::string& line = parameters.text;
    const bool passes = Contains(line, "iommu=pt") || Contains(line, "iommu.passthrough=1");
    const bool off = Contains(line, "amd_iommu=off") || Contains(line, "intel_iommu=off") ||
                     Contains(line, "iommu=off");
    const std::string state = off ? "off" : passes ? "passing through" : "not asked for";
    if (type.starts_with("DMA") && !passes && !off) {
        out.Note("IOMMU translating every access of cards", "iommu=pt (or off)",
                 rdma
                     ? "each 4 KiB of a transfer needs a translation: 5 to 30 % of bandwidth, and "
                       "up to 1 us a message"
                     : "each access of the GPU to memory is translated: 2 to 6 % of token speed on "
                       "APUs",
                 AddParameter(view, "iommu=pt"));
    }
    const Reading lspci = CommandLike(view, "lspci -vv");
    if (rdma && gpu && lspci.found() && RedirectsPeers(lspci.text)) {
        out.Note("ACS redirects requests between cards (ReqRedir+ on a bridge)",
                 "ReqRedir- on the bridges between the card and the GPU",
                 "card and GPU talk by way of the root complex: GPU memory is reached at half the "
                 "speed or not at all",
                 "switch ACS off in the BIOS; or with setpci on those bridges, ECAP_ACS+6.w=0000");
    }
    if (!out.empty() || (!parameters.found() && type.empty())) return;
    out.Ok("IOMMU " + (type.empty() || off || passes ? state : "of type " + type));
}

}  // namespace weft::doctor::checks
