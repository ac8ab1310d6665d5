// The kernel's moving of pages between NUMA nodes.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

void RunNumaBalancing(HostView& view, Findings& out) {
    const std::string state = view.Text("proc/sys/kernel/numa_balancing");
    const size_t nodes = Numbered(view, "sys/devices/system/node", "node").size();
    if (state.empty()) return;
    const std::string read = fmt::format("kernel.numa_balancing = {}, {} nodes", state, nodes);
    if (nodes < 2 || state == "0") return out.Ok(read);
    // The kernel's own choice on such machines: worth knowing, no fault.
    out.Note(read, "0 on a machine of several nodes",
             "the kernel unmaps pages to see who uses them: each touch is then a fault of 1 to 5 "
             "us, and pinned memory is scanned for nothing",
             SetSysctl(view, "kernel.numa_balancing=0"));
}

}  // namespace

const Check kNumaBalancing = {
    .name = "numa-balancing",
    .what = "Automatic NUMA balancing on a machine of several nodes.",
    .reads = "/proc/sys/kernel/numa_balancing, /sys/devices/system/node",
    .why = "Page faults that exist only to sample accesses stall every thread in turn.",
    .run = RunNumaBalancing,
};

}  // namespace weft::doctor::checks
