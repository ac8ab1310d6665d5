// Cores that were slowed down because they were hot.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

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

}  // namespace

const Check kCpuThrottling = {
    .name = "cpu-throttling",
    .what = "Thermal throttling of the processor, counted while the other checks run.",
    .reads = "/sys/devices/system/cpu/cpu0/thermal_throttle, twice",
    .why = "The slowest rank sets the speed of all.",
    .run = RunCpuThrottling,
};

}  // namespace weft::doctor::checks
