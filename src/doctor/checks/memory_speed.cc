// Memory modules: one in place of two is half the bandwidth, and so half the tokens.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

struct Modules {
    size_t filled = 0, slots = 0;
    double rated = 0, configured = 0;  // MT/s, of the slowest
};

Modules ParseMemorySpeed(std::string_view text) {
    Modules modules;
    bool inside = false, filled = false;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        if (trimmed == "Memory Device") {
            inside = true;
            filled = false;
            ++modules.slots;
        } else if (!inside) {
            continue;
        } else if (trimmed.starts_with("Size: ")) {
            filled = !Contains(trimmed, "No Module");
            modules.filled += filled ? 1 : 0;
        } else if (filled && trimmed.starts_with("Speed: ")) {
            const double speed = LeadingNumber(trimmed.substr(7)).value_or(0);
            if (speed > 0 && (modules.rated == 0 || speed < modules.rated)) modules.rated = speed;
        } else if (filled && trimmed.starts_with("Configured Memory Speed: ")) {
            const double speed = LeadingNumber(trimmed.substr(25)).value_or(0);
            if (speed > 0 && (modules.configured == 0 || speed < modules.configured)) {
                modules.configured = speed;
            }
        }
    }
    return modules;
}

void RunMemorySpeed(HostView& view, Findings& out) {
    if (IsVirtualMachine(view)) return;
    const Reading table = view.Command("dmidecode -t memory");
    if (!table.found()) return;
    const Modules modules = ParseMemorySpeed(table.text);
    if (modules.filled == 0) return;
    const std::string read =
        fmt::format("{} of {} memory slots filled, {:g} MT/s (rated {:g})", modules.filled,
                    modules.slots, modules.configured, modules.rated);
    if (modules.filled == 1 && modules.slots > 1) {
        return out.Warn(read, "a module in each channel",
                        fmt::format("one channel: {:.0f} GB/s instead of {:.0f}; decoding reads "
                                    "all weights a token, so half the tokens a second",
                                    modules.configured * 8e-3, modules.configured * 16e-3),
                        "a second module of the same kind, in the slot of the other channel");
    }
    if (modules.configured > 0 && modules.configured < modules.rated * 0.95) {
        return out.Note(read, fmt::format("{:g} MT/s", modules.rated),
                        fmt::format("memory at {:.0f} % of what its modules can",
                                    100 * modules.configured / modules.rated),
                        "switch the memory profile (XMP, EXPO) on in the BIOS");
    }
    out.Ok(read);
}

}  // namespace

const Check kMemorySpeed = {
    .name = "memory-speed",
    .what = "Memory modules: channels in use, and their speed.",
    .reads = "dmidecode -t memory (as root)",
    .why = "Tokens a second follow memory bandwidth: one module in place of two is half of it.",
    .run = RunMemorySpeed,
};

}  // namespace weft::doctor::checks
