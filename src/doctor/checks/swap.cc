// Memory that was written out to swap.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

constexpr double kMuch = 1 << 30;

// Bytes in use of /proc/swaps (proc(5): file name, type, size, used in KiB, priority) on zram,
// which is memory: Fedora and Arch swap to it by default. None where that was not read.
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

// Distributions that set zram up, or may.
bool SwapsToMemory(HostView& view) {
    switch (DistributionOf(view)) {
        case Distribution::kFedora:
        case Distribution::kOstree:
        case Distribution::kArch: return true;
        case Distribution::kDebian: {
            const DebianKind kind = DebianKindOf(view);
            return kind == DebianKind::kPop || kind == DebianKind::kRaspberry;
        }
        case Distribution::kYum:
        case Distribution::kNixOs:
        case Distribution::kSuse:
        case Distribution::kGentoo:
        case Distribution::kAlpine:
        case Distribution::kUnknown: return false;
    }
    WEFT_CHECK(false);
}

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

}  // namespace

const Check kSwap = {
    .name = "swap",
    .what = "Swap in use.",
    .reads = "/proc/meminfo, /proc/swaps",
    .why =
        "A token that waits for a page from a drive waits a thousand times longer than for "
        "memory.",
    .run = RunSwap,
};

}  // namespace weft::doctor::checks
