// Waits of tests for an event that nobody signals: the only place in the tests that polls
// (tests/tidy/tidy.py). Tests wait for events of a descriptor, a condition variable or a process
// with these objects' own functions.
//
//   Until(ready)           ready() holds
//   Prints(weft, text)     a support::Weft has printed `text` on standard output
//   Reports(weft, text)    the same on standard error
//   PortOf(worker)         port of `weft worker --listen ADDRESS:0`
//   ChildrenAre(pid, n)    the n children of a process
//   Computes(pid, ticks)   a process has used so much more CPU time (in 10 ms); false if it ends
//   GoesOn(pid, turns)     its main thread has slept and run so many times more; false if it ends
//   Sleeps(tid)            a thread of this process waits for something
//   OthersSleep()          all threads of this process but the caller do
//   Readable(fd)           data, or the end of the connection, can be read
//
// Each accepts a deadline, which only ends a hang, and checks once more after it. If time itself is
// tested:
//
//   Outlast(timeout_ms)    the time-out of a live process or thread passes, while nothing happens
//   Pace(period_us)        a client, peer or machine with its own speed
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "support/limits.h"
#include "support/process.h"

namespace weft::test {

// Longer than anything that a test waits for; 30 s of an idle machine.
inline Deadline Patience() {
    return Limit(30'000);
}

// False if the deadline expires first. Looks every 0.5 ms.
template <typename Ready>
bool Until(const Ready& ready, const Deadline& deadline = Patience()) {
    while (!ready()) {
        if (deadline.expired()) return ready();
        ::usleep(500);
    }
    return true;
}

inline bool Readable(int fd, const Deadline& deadline = Patience()) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(deadline.left_ms())) > 0;
}

// timeout_ms: computed from an option or constant of the code under test, which the test waits out.
inline void Outlast(int64_t timeout_ms) {
    const Deadline end = Deadline::In(timeout_ms);
    while (!end.expired()) ::usleep(static_cast<useconds_t>(1000 * end.left_ms() + 100));
}

class Pace {
  public:
    explicit Pace(int64_t period_us) : period_us_(static_cast<useconds_t>(period_us)) {}
    // Returns after a period.
    void Next() const { ::usleep(period_us_); }

  private:
    useconds_t period_us_;
};

template <typename Program>
bool Prints(const Program& weft, std::string_view text, const Deadline& deadline = Patience()) {
    return Until([&] { return weft.Out().find(text) != std::string::npos; }, deadline);
}

template <typename Program>
bool Reports(const Program& weft, std::string_view text, const Deadline& deadline = Patience()) {
    return Until([&] { return weft.Err().find(text) != std::string::npos; }, deadline);
}

// 0 if it never listens.
template <typename Program>
int PortOf(const Program& worker) {
    constexpr std::string_view kBefore = "(port ";
    if (!Reports(worker, kBefore)) return 0;
    const std::string said = worker.Err();
    return std::atoi(said.c_str() + said.find(kBefore) + kBefore.size());
}

// In order of their start; fewer than `count` if the deadline expires first.
inline std::vector<pid_t> ChildrenAre(pid_t pid, size_t count,
                                      const Deadline& deadline = Patience()) {
    std::vector<pid_t> children;
    Until([&] { return (children = ChildrenOf(pid)).size() >= count; }, deadline);
    return children;
}

// Returns the CPU time of a process in units of 10 ms (proc_pid_stat(5)), or 0 if the process does
// not exist.
inline int64_t CpuTicks(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text, word;
    std::getline(file, text);
    std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
    int64_t ticks = 0;
    for (int field = 3; field <= 15 && rest >> word; ++field) {
        if (field >= 14) ticks += std::atoll(word.c_str());
    }
    return ticks;
}

// On a busy machine, time says nothing about how far a process has come; its CPU time does.
inline bool Computes(pid_t pid, int64_t ticks) {
    const int64_t enough = CpuTicks(pid) + ticks;
    Until([&] { return CpuTicks(pid) >= enough || IsGone(pid); });
    return !IsGone(pid);
}

// "Name:   value" of proc_pid_status(5); "" if there is no such process.
inline std::string StatusOf(const std::string& who, const std::string& name) {
    std::ifstream file("/proc/" + who + "/status");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(name + ":"))
            return line.substr(line.find_first_not_of(" \t", name.size() + 1));
    }
    return {};
}

inline bool GoesOn(pid_t pid, int64_t turns) {
    const auto slept = [pid] {
        return std::atoll(StatusOf(std::to_string(pid), "voluntary_ctxt_switches").c_str());
    };
    const int64_t enough = slept() + turns;
    Until([&] { return slept() >= enough || IsGone(pid); });
    return !IsGone(pid);
}

inline bool Sleeps(pid_t tid) {
    return Until(
        [&] { return StatusOf("self/task/" + std::to_string(tid), "State").starts_with("S"); });
}

inline bool OthersSleep() {
    return Until([] {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            const std::string tid = task.path().filename();
            const std::string state = StatusOf("self/task/" + tid, "State");
            if (tid != std::to_string(::gettid()) && !state.empty() && state[0] != 'S')
                return false;
        }
        return true;
    });
}

// Uses so much CPU time in this thread, in place of an idle wait: what others use in that time does
// not depend on how busy the machine is.
inline void ComputeMs(int64_t ms) {
    const auto used_ns = [] {
        timespec used{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
    };
    for (const int64_t end = used_ns() + ms * 1'000'000; used_ns() < end;) continue;
}

// Whether a signal has been sent to a process that has not taken it yet.
inline bool IsPending(pid_t pid, int signal) {
    const std::string mask = StatusOf(std::to_string(pid), "ShdPnd");
    return (std::strtoull(mask.c_str(), nullptr, 16) >> (signal - 1) & 1) != 0;
}

}  // namespace weft::test
