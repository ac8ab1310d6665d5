// Limits of a container or a service, which the machine's own figures don't show.
#include <fmt/format.h>

#include <cmath>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

// The group of this process, in the second hierarchy: "0::/system.slice/weft.service".
std::string GroupOf(HostView& view) {
    const Reading groups = view.Read("proc/self/cgroup");
    if (!groups.found()) return "";
    const std::string group(After(groups.text, "0::"));
    return group.empty() || group == "/" ? "" : group;
}

void RunCgroupLimits(HostView& view, Findings& out) {
    const std::string group = GroupOf(view);
    const auto ram = MemInfo(view, "MemTotal");
    std::string folder = "sys/fs/cgroup" + group;
    if (!view.Has(folder + "/memory.max")) folder = "sys/fs/cgroup";  // as a container sees its own
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

}  // namespace

const Check kCgroupLimits = {
    .name = "cgroup-limits",
    .what = "Limits of memory and processor time of a container or a service.",
    .reads = "/proc/self/cgroup, /sys/fs/cgroup/**/{memory.max,cpu.max}",
    .why = "A quota of processor time pauses a rank for tens of ms at a time.",
    .run = RunCgroupLimits,
};

}  // namespace weft::doctor::checks
