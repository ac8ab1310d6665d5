// Checks processor, memory, clock and IOMMU settings, temperatures, memory modules, and ranks on
// one host.

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
    const auto least = view.Number(policy + "/scaling_min_freq");
    const auto most = view.Number(policy + "/cpuinfo_max_freq");
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
    for (const auto& words : WordLines(swaps.text)) {
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

// Finds a GPU and another GPU or fast network card below one PCIe switch that sends their requests
// to the root.
struct RedirectedPair {
    const PciDevice *gpu, *other, *bridge;
};
std::optional<RedirectedPair> PairBelowSwitch(HostView& view) {
    const std::vector<PciDevice>& devices = PciDevices(view);
    for (const PciDevice& gpu : devices) {
        const PciDevice* slot = SlotOf(view, gpu);
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
    const auto value = view.Number(path);
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
    for (const auto& words : WordLines(text)) {
        if (words.size() != 4) continue;
        const double us = Number(words[2]).value_or(0);
        if (words[0] == "all_reduce") times.reduce_us = us;
        if (words[0] == "one_way" && words[1] == "64") times.small_us = us;
        if (words[0] == "one_way" && words[1] == "8192") times.large_us = us;
    }
    return times;
}

// ---- memory-speed: half of the channels means half of the bandwidth and of the tokens/s.

struct Modules {
    size_t filled = 0, slots = 0, declared = 0;  // declared: slots by the board's count
    bool virtual_machine = false;
    double rated = 0, configured = 0;      // MT/s of the slowest module
    std::map<std::string, bool> channels;  // by name: a slot is filled
};

// The channel in "Locator: Controller1-ChannelA-DIMM0", "Locator: DIMM_A2" or "Bank Locator: P0
// CHANNEL B", with the processor or controller before it; "": the board names none.
std::string ChannelOf(std::string_view locator) {
    const std::string_view text = Trim(locator.substr(locator.find(':') + 1));
    for (std::string_view key : {"Channel", "CHANNEL ", "CHANNEL_"}) {
        const size_t at = text.find(key);
        if (at != text.npos && at + key.size() < text.size()) {
            return std::string(text.substr(0, at + key.size() + 1));
        }
    }
    const size_t at = text.find("DIMM");
    if (at == text.npos) return {};
    std::string_view rest = text.substr(at + 4);
    rest.remove_prefix(std::min(rest.find_first_not_of("_ "), rest.size()));
    const bool letter =
        rest.size() == 2 && rest[0] >= 'A' && rest[0] <= 'P' && rest[1] >= '0' && rest[1] <= '9';
    return letter ? std::string(text.substr(0, text.size() - 1)) : std::string();
}

// Number of channels with a module, and number of all channels of processors that have one.
std::pair<size_t, size_t> Channels(const Modules& modules) {
    std::map<std::string_view, std::pair<size_t, size_t>> processors;
    for (const auto& [name, filled] : modules.channels) {
        // The name without the channel's letter, "P1 CHANNEL " or "P1-DIMM". All Intel memory
        // controllers count as one processor.
        std::string_view processor = std::string_view(name).substr(0, name.size() - 1);
        if (processor.starts_with("Controller")) processor = "Controller";
        auto& [used, all] = processors[processor];
        used += filled ? 1 : 0;
        ++all;
    }
    std::pair<size_t, size_t> sum{0, 0};
    for (const auto& [processor, count] : processors) {
        if (count.first == 0) continue;
        sum.first += count.first;
        sum.second += count.second;
    }
    return sum;
}

void TakeSlower(double& slowest, std::string_view value) {
    const double speed = LeadingNumber(value).value_or(0);
    if (speed > 0 && (slowest == 0 || speed < slowest)) slowest = speed;
}

Modules ParseModules(std::string_view text) {
    Modules modules;
    bool inside = false, filled = false;
    std::string channel;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        const std::string_view key = trimmed.substr(0, trimmed.find(':'));
        const std::string_view value = trimmed.substr(std::min(key.size() + 1, trimmed.size()));
        if (key == "Number Of Devices") {
            modules.declared += static_cast<size_t>(Integer(value).value_or(0));
        }
        modules.virtual_machine |=
            key == "Manufacturer" && ContainsAny(value, "QEMU|VMware|Microsoft|Google|Amazon");
        if (trimmed == "Memory Device") {
            inside = true;
            filled = false;
            ++modules.slots;
        } else if (!inside) {
            continue;
        } else if (key == "Size") {
            filled = !Contains(value, "No Module");
            modules.filled += filled ? 1 : 0;
            channel.clear();
        } else if (key == "Locator" || key == "Bank Locator") {
            if (!channel.empty()) continue;
            channel = ChannelOf(trimmed);
            if (!channel.empty()) modules.channels[channel] |= filled;
        } else if (filled && key == "Speed") {
            TakeSlower(modules.rated, Trim(value));
        } else if (filled && key == "Configured Memory Speed") {
            TakeSlower(modules.configured, Trim(value));
        }
    }
    return modules;
}

// Asks for the cost only if models run from this memory; a discrete GPU has its own.
void EstimateMemoryCost(HostView& view, double share, Findings& out) {
    CostQuestion question;
    question.host = FactsOf(view);
    question.faulty.bandwidth_share = share;
    const bool own = question.host.unified_bytes <= 0 && !question.host.gpus.empty();
    if (!own) out.EstimateCost(question);
}

}  // namespace

void RunCpuGovernor(HostView& view, Findings& out) {
    // With these drivers the hardware chooses the clock, and "powersave" means "automatic".
    constexpr std::string_view kAutomatic = "intel_pstate amd-pstate-epp amd_pstate_epp";
    const std::vector<std::string> policies = Policies(view);
    for (const std::string& policy : policies) {
        const std::string governor = view.Text(policy + "/scaling_governor");
        const std::string driver = view.Text(policy + "/scaling_driver");
        const std::string preference = view.Text(policy + "/energy_performance_preference");
        if (governor.empty()) continue;
        const std::string name = policy.substr(kCpus.size()), clock = ClockText(view, policy);
        const std::string driver_text = driver.empty() ? "unknown" : driver;
        if (IsOneOf(preference, "power balance_power")) {
            return Report<found::kEnergyPreference>(out, name, governor, driver_text, clock,
                                                    preference);
        }
        // Only hardware-controlled clocks have a preference.
        if (governor == "performance" || IsOneOf(driver, kAutomatic) || !preference.empty()) {
            continue;
        }
        return ReportAs<found::kGovernor>(
            governor == "powersave" && !driver.empty() ? kWarn : kNote, out, name, governor,
            driver_text, clock);
    }
    if (policies.empty()) return;
    ReportOk(out, "governor {} on {} policies", view.Text(policies.front() + "/scaling_governor"),
             policies.size());
}

// ---- numa-balancing, huge-pages: settings of the kernel's memory management.

// Number of processors (sockets); 0: unknown.
size_t Sockets(HostView& view) {
    std::set<std::string_view> ids;
    const Reading cpu = view.Read("proc/cpuinfo");
    for (std::string_view line : Lines(cpu.text)) {
        if (line.starts_with("physical id")) ids.insert(After(line, ":"));
    }
    return ids.size();
}

void RunNumaBalancing(HostView& view, Findings& out) {
    const Reading parameters = view.Read("proc/cmdline");
    const size_t sockets = Sockets(view);
    for (const char* off : {"numa=off", "numa=noacpi"}) {
        if (sockets < 2 || !IsIn(Words(parameters.text), off)) continue;
        return Report<found::kNumaOff>(out, sockets, off, RemoveParameter(view, off));
    }
    const std::string state = view.Text("proc/sys/kernel/numa_balancing");
    const size_t nodes = Numbered(view, "sys/devices/system/node", "node").size();
    if (state.empty()) return;
    // The kernel's default on such machines: worth a note, not a fault.
    ReportUnless<found::kNumaBalancing>(nodes < 2 || state == "0", out, state, nodes,
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
        Report<found::kHugePagesUnused>(out, unused, count("HugePages_Total:"),
                                        SizeText(unused_bytes), SizeText(total_bytes));
    }
    const std::string enabled = view.Text("sys/kernel/mm/transparent_hugepage/enabled");
    if (enabled.empty()) return;
    ReportAs<found::kHugePages>(Contains(enabled, "[never]") ? kWarn : kOk, out, enabled);
}

void RunSwap(HostView& view, Findings& out) {
    constexpr double kGib = 1 << 30, kLeastAvailable = 20;  // a twentieth
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
        return Report<found::kSwapZramUnread>(out, size, used_size, zram);
    }
    const auto memory = MemInfo(view, "MemTotal"), available = MemInfo(view, "MemAvailable");
    if (in_memory >= kGib && memory && available && *available < *memory / kLeastAvailable) {
        Report<found::kZramFull>(out, SizeText(in_memory), SizeText(*available), SizeText(*memory));
    }
    ReportUnless<found::kSwapUsed>(used < kGib, out, size, used_size, zram, used / 2e9);
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
    if (value == "no") Report<found::kClockFree>(out);
}

void RunIommu(HostView& view, Findings& out) {
    const bool rdma = HasRdma(view), gpu = !AmdGpus(view).empty();
    const auto pair = PairBelowSwitch(view);
    if (pair) {
        Report<found::kAcsBelowSwitch>(out, pair->gpu->Text(), pair->other->Text(),
                                       pair->bridge->address);
    }
    if (!rdma && !gpu) return;
    const Reading parameters = view.Read("proc/cmdline");
    const std::string type = GroupType(view);
    const bool passes = ContainsAny(parameters.text, "iommu=pt|iommu.passthrough=1");
    const bool off = Contains(parameters.text, "iommu=off");  // also amd_iommu and intel_iommu
    if (type.starts_with("DMA") && !passes && !off) {
        Report<found::kIommuTranslates>(
            out,
            rdma ? "the IOMMU translates each 4 KiB of a transfer: 5 to 30 % of bandwidth, and up "
                   "to 1 us a message"
                 : "the IOMMU translates each access of the GPU to memory: 2 to 6 % of token speed "
                   "on APUs");
    }
    const Reading lspci = CommandLike(view, "lspci -vv");
    if (!pair && rdma && gpu && lspci.found() && RedirectsPeers(lspci.text)) {
        Report<found::kAcsRedirects>(out);
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
    constexpr std::string_view kCards = "mlx5 mlx4 bnxt_en ice i40e ixgbe cxgb4 atlantic";
    constexpr std::string_view kGpus = "amdgpu nouveau xe i915", kEnd = "_input";
    size_t sensors = 0;
    for (const std::string& device : Numbered(view, kSensors, "hwmon")) {
        const std::string folder = fmt::format("{}/{}", kSensors, device);
        const std::string name = view.Text(folder + "/name");
        const bool card = IsOneOf(name, kCards);
        if (!card && !IsOneOf(name, kGpus)) continue;
        for (const std::string& file : view.List(folder)) {
            if (!file.starts_with("temp") || !file.ends_with(kEnd)) continue;
            if (++sensors > kMaxSensors) return;
            const std::string path = folder + "/" + file.substr(0, file.size() - kEnd.size());
            const auto now = Degrees(view, path + "_input"), limit = Degrees(view, path + "_crit");
            if (!now || !limit || *limit < 40) continue;
            const std::string label = view.Text(path + "_label");
            const double warm = *limit - kMarginDegrees;
            const Severity severity = *now >= *limit ? kFail : *now >= warm ? kWarn : kOk;
            const std::string sensor = name + (label.empty() ? "" : " " + label);
            if (card) ReportAs<found::kCardHeat>(severity, out, sensor, *now, warm);
            if (!card) ReportAs<found::kGpuHeat>(severity, out, sensor, *now, warm);
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
            Report<found::kMeasuredFailed>(out, limit.transport, measured.text);
            continue;
        }
        const Times times = measured.found() ? ParseTimes(measured.text) : Times{};
        if (times.small_us <= 0) continue;
        const double small = limit.small_us * factor, large = limit.large_us * factor;
        const bool fine = times.small_us <= small && times.large_us <= large;
        const auto cpus = Number(view.Probe("cpus").text);
        const bool shared = cpus && *cpus < 2;
        ReportUnless<found::kMeasured>(
            fine, out, limit.transport, times.small_us, times.large_us, times.reduce_us, small,
            large,
            shared ? "two ranks take turns on one processor"
                   : "ranks of this host wait this long for each other, twice in each layer",
            shared
                ? ""
                : "look for other programs (top), cpu-governor and cpu-throttling; measure again "
                  "on an idle machine");
    }
}

void RunMemorySpeed(HostView& view, Findings& out) {
    if (IsVirtualMachine(view)) return;
    Reading table = view.Command("dmidecode -t memory");
    for (const char* command : {"dmidecode -t 17", "dmidecode --type memory", "dmidecode"}) {
        if (!table.found() && !view.Complete()) table = view.Command(command);
    }
    if (!table.found()) return;
    const Modules modules = ParseModules(table.text);
    if (modules.filled == 0 || modules.virtual_machine) return;
    const std::string read =
        fmt::format("{} of {} memory slots filled, {:g} MT/s (rated {:g})", modules.filled,
                    modules.slots, modules.configured, modules.rated);
    // A truncated list shows too few modules.
    const bool whole = !table.cut && modules.slots >= modules.declared;
    const auto [used, channels] = Channels(modules);
    if (modules.filled == 1 && modules.slots > 1 && whole) {
        Report<found::kMemoryOneModule>(out, read, modules.configured * 8e-3,
                                        modules.configured * 16e-3);
        EstimateMemoryCost(view, 0.5, out);
    } else if (whole && used > 0 && used < channels) {
        const double share = static_cast<double>(used) / static_cast<double>(channels);
        ReportAs<found::kMemoryChannels>(share <= 0.5 ? kWarn : kNote, out, read, used, channels,
                                         100 * share);
        EstimateMemoryCost(view, share, out);
    } else if (modules.configured > 0 && modules.configured < modules.rated * 0.95) {
        const double share = modules.configured / modules.rated;
        Report<found::kMemorySlow>(out, read, modules.rated, 100 * share);
        EstimateMemoryCost(view, share, out);
    } else {
        out.Ok(read);
    }
}

}  // namespace weft::doctor::checks
