#include "coll/ticks.h"

#include <time.h>

#include <fstream>
#include <string>

namespace weft::coll {
namespace {

// Largest lag of the coarse clock: a timer tick of 100 Hz.
constexpr int64_t kCoarseLagNs = 10'000'000;
// Below this, the time to read the clocks would distort the rate.
constexpr int64_t kLeastNs = 1'000'000;

bool KernelKeepsTimeByCounter() {
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string name;
    return file >> name && name == "tsc";
}

}  // namespace

TickClock::TickClock() : by_counter_(KernelKeepsTimeByCounter()) {
    first_ticks_ = Now();
    first_ns_ = NowNs();
}

void TickClock::ToNs(std::span<int64_t> ticks) const {
    if (!by_counter_) return;
    int64_t now_ticks = Now(), now_ns = NowNs();
    while (now_ns - first_ns_ < kLeastNs) now_ticks = Now(), now_ns = NowNs();
    const double rate =
        static_cast<double>(now_ns - first_ns_) / static_cast<double>(now_ticks - first_ticks_);
    for (int64_t& time : ticks) {
        time = now_ns - static_cast<int64_t>(static_cast<double>(now_ticks - time) * rate);
    }
}

Deadline CoarseDeadline(int64_t ms) {
    if (virtual_clock_ns != nullptr) return Deadline::In(ms);
    timespec coarse;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse);
    return Deadline::From(coarse.tv_sec * 1'000'000'000 + coarse.tv_nsec + kCoarseLagNs, ms);
}

}  // namespace weft::coll
