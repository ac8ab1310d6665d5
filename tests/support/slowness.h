// How much slower than an idle, ordinary one this machine is right now: for deadlines that are not
// what a test is about, and for bounds on time that an idle machine keeps with ease.
//
//   Slowness()       1 on an idle machine, 2 to 4 beside two busy programs a core, at most 8
//   Slower(ms)       so many milliseconds of an idle machine
//   LenientDeadline  a deadline that moves out, once it is reached, by as much as Slowness() says
//
// Measured: as many threads as cores, each with the same piece of arithmetic, which takes a core of
// 3 GHz 20 ms; the slowest counts (other programs, other virtual machines and an emulated processor
// show alike), and how late a short sleep ends. Measured anew where the last time is 2 s ago; of
// two measurements in a row the larger counts, since load comes and goes. WEFT_TEST_SLOWNESS=N: at
// least N. A job that is started with a scaled timeout is judged with the same one: take it once.
//
// How long something took, without what kept it from running: stopwatch.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.h"

namespace weft::test {

inline constexpr double kMostSlowness = 8;

inline double MeasureSlowness() {
    constexpr double kUsualNs = 20e6;
    constexpr int kSteps =
        15'000'000;  // a product and a sum each: four cycles, one after the other
    constexpr size_t kMostThreads = 8;
    constexpr double kLateNs = 10e6;  // a sleep that ends so late is worth another whole machine
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<int64_t> took_ns(std::min(cores, kMostThreads));
    std::vector<std::thread> threads;
    for (int64_t& took : took_ns) {
        threads.emplace_back([&took] {
            const int64_t begin_ns = NowNs();
            uint64_t value = static_cast<uint64_t>(begin_ns);
            for (int step = 0; step < kSteps; ++step) {
                value = value * 6364136223846793005u + 1442695040888963407u;
            }
            // What was computed must be used, or it is not computed.
            took = NowNs() - begin_ns + (value == 0 ? 1 : 0);
        });
    }
    int64_t late_ns = 0;
    for (int i = 0; i < 5; ++i) {
        const int64_t begin_ns = NowNs();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        late_ns = std::max(late_ns, NowNs() - begin_ns - 1'000'000);
    }
    for (std::thread& thread : threads) thread.join();
    const auto slowest_ns = static_cast<double>(*std::ranges::max_element(took_ns));
    return std::max(slowest_ns / kUsualNs, 1 + static_cast<double>(late_ns) / kLateNs);
}

inline double Slowness() {
    static std::mutex mutex;
    static double last = 1, before = 1;
    static int64_t measured_ns = -1;
    const std::scoped_lock lock(mutex);
    if (measured_ns < 0 || NowNs() - measured_ns > 2'000'000'000) {
        before = last;
        last = MeasureSlowness();
        measured_ns = NowNs();
    }
    const char* wish = std::getenv("WEFT_TEST_SLOWNESS");
    const double least = wish == nullptr ? 1 : std::max(1.0, std::atof(wish));
    return std::max(least, std::clamp(std::max(last, before), 1.0, kMostSlowness));
}

inline int64_t Slower(int64_t ms) {
    return static_cast<int64_t>(static_cast<double>(ms) * Slowness());
}

// For waits that end early where all is well: nothing is measured until the time is over.
class LenientDeadline {
  public:
    explicit LenientDeadline(const Deadline& deadline)
        : ms_(deadline.left_ms()), deadline_(deadline) {}
    bool expired() {
        if (!deadline_.expired()) return false;
        if (ms_ > 0) deadline_ = Deadline::In(Slower(ms_) - ms_);
        ms_ = 0;
        return deadline_.expired();
    }
    const Deadline& now() const { return deadline_; }

  private:
    int64_t ms_;
    Deadline deadline_;
};

}  // namespace weft::test
