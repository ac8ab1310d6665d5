// Memory that was written out to swap.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

constexpr double kMuch = 1 << 30;

void RunSwap(HostView& view, Findings& out) {
    const auto total = MemInfo(view, "SwapTotal");
    const auto free = MemInfo(view, "SwapFree");
    if (!total || !free) return;
    if (*total <= 0) return out.Ok("no swap");
    const double used = *total - *free;
    const std::string read =
        fmt::format("swap {}, of it used {}", SizeText(*total), SizeText(used));
    if (used < kMuch) return out.Ok(read, "less than 1 GiB in use");
    out.Warn(read, "less than 1 GiB in use",
             fmt::format("a page that comes back from an NVMe drive takes 100 us, from memory 0.1 "
                         "us; {} of swapped weights cost {:.1f} s the first time",
                         SizeText(used), used / 2e9),
             "sudo swapoff -a && sudo swapon -a (once there is room), and sudo sysctl -w "
             "vm.swappiness=1");
}

}  // namespace

const Check kSwap = {
    .name = "swap",
    .what = "Swap in use.",
    .reads = "/proc/meminfo",
    .why =
        "A token that waits for a page from a drive waits a thousand times longer than for "
        "memory.",
    .run = RunSwap,
};

}  // namespace weft::doctor::checks
