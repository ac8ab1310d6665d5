// How long something took, without the time in which a program could not have done it faster:
//
//   stolen   A hypervisor may leave a virtual machine standing for seconds, in which nothing at all
//            runs there. Linux counts them as "steal" (proc(5), /proc/stat) once it runs on.
//   held up  Linux has a process wait where no signal reaches it (state D), or ends it (exiting):
//            none of its code runs, and what others learn from its end they don't learn yet. Each
//            process that ends or maps memory takes a lock of each file that all have mapped
//            (libc.so); who looks for pages to reclaim holds it on the way through all these
//            processes, and on busy cores lets others run meanwhile. Seconds were seen.
//
// A program that waits for another, sleeps or computes is not held up.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "support/process.h"

namespace weft::test {

// By processor, in hundredths of a second: the eighth figure of each line cpuN of /proc/stat.
inline std::vector<int64_t> StolenTicks(std::istream& stat) {
    constexpr int kSteal = 8;
    std::vector<int64_t> stolen;
    for (std::string line; std::getline(stat, line);) {
        if (!line.starts_with("cpu") || line.starts_with("cpu ")) continue;
        std::istringstream words(line);
        std::string name;
        words >> name;
        int64_t ticks = 0;
        for (int i = 0; i < kSteal; ++i) words >> ticks;
        stolen.push_back(words.fail() ? 0 : ticks);
    }
    return stolen;
}

// What the processor that lost least has lost, so that this much at least nothing ran.
inline int64_t StolenNs(const std::vector<int64_t>& before, const std::vector<int64_t>& now) {
    constexpr int64_t kNsPerTick = 10'000'000;
    if (before.empty() || before.size() != now.size()) return 0;  // one was taken away, or came
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < now.size(); ++i) least = std::min(least, now[i] - before[i]);
    return std::max<int64_t>(0, least) * kNsPerTick;
}

// Whether it waits where no signal reaches it, or is being ended.
inline bool IsHeldUp(const StatLine& thread) {
    constexpr unsigned kExiting = 0x4;  // PF_EXITING of the kernel's linux/sched.h
    if (thread.state == 0 || thread.state == 'Z' || thread.state == 'X') return false;  // gone
    return thread.state == 'D' || (thread.flags & kExiting) != 0;
}

// Whether a thread of it is.
inline bool IsHeldUp(pid_t pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
    return std::ranges::any_of(NumbersIn(tasks), [&](pid_t task) {
        return IsHeldUp(ReadStatLine(tasks + std::to_string(task) + "/stat"));
    });
}

// Begins where it is made: before a process is killed, whose children lose their parent then. Looks
// every 10 ms whether a descendant of this process is held up, one that has lost its parent too.
class Stopwatch {
  public:
    Stopwatch() : looks_([this](const std::stop_token& stop) { Look(stop); }) {}
    int64_t wall_ns() const { return NowNs() - begin_ns_; }
    int64_t held_ns() const { return held_ns_.load(); }
    // While a machine stands still its processes are held up, too: the larger of the two counts.
    int64_t ns() const {
        return wall_ns() - std::max(StolenNs(stolen_, Stolen()), held_ns_.load());
    }

  private:
    static std::vector<int64_t> Stolen() {
        std::ifstream stat("/proc/stat");
        return StolenTicks(stat);
    }
    // From one look to the next, if it was so at both.
    void Look(const std::stop_token& stop) {
        constexpr int64_t kSearchNs = 500'000'000;  // for those that have begun since
        std::vector<pid_t> pids = pids_;
        int64_t searched_ns = begin_ns_, looked_ns = begin_ns_;
        bool was_held = false;
        while (!stop.stop_requested()) {
            const int64_t now_ns = NowNs();
            if (now_ns - searched_ns >= kSearchNs) {
                for (const pid_t pid : DescendantsOf(::getpid())) {
                    if (std::ranges::find(pids, pid) == pids.end()) pids.push_back(pid);
                }
                searched_ns = now_ns;
            }
            const bool held = std::ranges::any_of(pids, [](pid_t pid) { return IsHeldUp(pid); });
            if (held && was_held) held_ns_ += now_ns - looked_ns;
            was_held = held;
            looked_ns = now_ns;
            ::usleep(10'000);
        }
    }

    std::vector<int64_t> stolen_ = Stolen();
    std::vector<pid_t> pids_ = DescendantsOf(::getpid());
    int64_t begin_ns_ = NowNs();
    std::atomic<int64_t> held_ns_ = 0;
    std::jthread looks_;
};

}  // namespace weft::test
