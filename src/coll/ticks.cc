#include "coll/ticks.h"

#include <time.h>

#include <fstream>
#include <string>

namespace weft::coll {
namespace {

// Largest lag of the coarse clock: a timer tick of 100 Hz.
constexpr int64_t kCoarseLagNs = 10'000'000;
constexpr int kReadings = 3;
// Below this, the time to read the clocks would distort the rate.
constexpr int64_t kLeastNs = 1'000'000;

bool KernelKeepsTimeByCounter() {
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string name;
    return file >> name && name == "tsc";
}

}  // namespace

TickClock::TickClock() : by_counter_(KernelKeepsTimeByCounter()), first_(Read()) {}

TickClock::Moment TickClock::Read() const {
    Moment best{};
    int64_t least = INT64_MAX;
    for (int i = 0; i < kReadings; ++i) {
        const int64_t before = Now(), ns = NowNs(), width = Now() - before;
        if (width >= least) continue;
        least = width;
        best = {before + width / 2, ns};
    }
    return best;
}

void TickClock::ToNs(std::span<int64_t> ticks) const {
    if (!by_counter_) return;
    Moment now = Read();
    while (now.ns - first_.ns < kLeastNs) now = Read();
    const double rate =
        static_cast<double>(now.ns - first_.ns) / static_cast<double>(now.ticks - first_.ticks);
    for (int64_t& time : ticks) {
        time = now.ns - static_cast<int64_t>(static_cast<double>(now.ticks - time) * rate);
    }
}

Deadline CoarseDeadline(int64_t ms) {
    if (virtual_clock_ns != nullptr) return Deadline::In(ms);
    timespec coarse;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse);
    return Deadline::From(coarse.tv_sec * 1'000'000'000 + coarse.tv_nsec + kCoarseLagNs, ms);
}

}  // namespace weft::coll
