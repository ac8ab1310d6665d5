// Compares a ping-pong and an all-reduce on this host with the usual times of shared memory and
// TCP.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

struct Times {
    double small_us = 0, large_us = 0, reduce_us = 0;  // 64 B, 8 KiB, all-reduce of 8 KiB
};

// Lines "one_way 64 0.21 0.35" and "all_reduce 8192 0.9 1.4".
Times ParseMeasured(std::string_view text) {
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

// Upper limits for any idle machine; virtual machines take several times as long.
struct Bound {
    const char* transport;
    double small_us, large_us;
};
constexpr Bound kBounds[] = {{"shm", 5, 20}, {"tcp", 60, 80}};
constexpr double kVirtual = 4;

void LookMeasured(HostView& view, const Bound& bound, Findings& out) {
    const Reading measured = view.Probe(std::string("measure/") + bound.transport);
    if (measured.refused()) {
        return out.Warn(fmt::format("{}: {}", bound.transport, measured.text),
                        "a ping-pong between two threads", "this transport does not work here",
                        "weft run synthetic:smollm2-135m -p x -n 4 --local 2 --transport " +
                            std::string(bound.transport) + " shows more");
    }
    if (!measured.found()) return;
    const Times times = ParseMeasured(measured.text);
    if (times.small_us <= 0) return;
    const std::string read = fmt::format(
        "{}: one way {:.2f} us at 64 B, {:.2f} us at 8 KiB; all-reduce of 8 KiB {:.2f} us",
        bound.transport, times.small_us, times.large_us, times.reduce_us);
    const double factor = IsVirtualMachine(view) ? kVirtual : 1;
    const double small = bound.small_us * factor, large = bound.large_us * factor;
    const std::string expected =
        fmt::format("below {:g} us at 64 B and {:g} us at 8 KiB", small, large);
    const auto cpus = Number(view.Probe("cpus").text);
    if (times.small_us <= small && times.large_us <= large) return out.Ok(read, expected);
    if (cpus && *cpus < 2) {
        return out.Note(read, expected, "two ranks take turns on one processor", "");
    }
    out.Note(read, expected,
             "ranks of this host wait so long for each other, twice in each layer of a model",
             "look for other programs (top), cpu-governor, cpu-throttling; run it again when idle");
}

}  // namespace

void RunMeasured(HostView& view, Findings& out) {
    for (const Bound& bound : kBounds) LookMeasured(view, bound, out);
}

}  // namespace weft::doctor::checks
