// Deadline: an absolute point of the monotonic clock. Every wait in Weft takes a Deadline.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

using Clock = std::chrono::steady_clock;

// A simulation points this at its own clock, for the current thread; null: the real clock. Reading
// this pointer costs one thread-local load; reading the real clock takes about 25 ns.
inline constinit thread_local const int64_t* virtual_clock_ns = nullptr;

inline constexpr int64_t kNsPerMs = 1'000'000;

// Monotonic time in nanoseconds, the same clock in all processes of one host.
inline int64_t NowNs() {
    if (virtual_clock_ns != nullptr) [[unlikely]]
        return *virtual_clock_ns;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
        .count();
}

inline double SecondsSince(int64_t begin_ns) {
    return static_cast<double>(NowNs() - begin_ns) * 1e-9;
}

class Deadline {
  public:
    // A deadline `ms` milliseconds from now.
    static Deadline In(int64_t ms) { return From(NowNs(), ms); }
    // A deadline `ms` milliseconds after `begin_ns` (a time of NowNs).
    static Deadline From(int64_t begin_ns, int64_t ms) {
        return Deadline(begin_ns + ms * 1'000'000, ms);
    }

    bool expired() const { return NowNs() >= at_ns_; }
    int64_t at_ns() const { return at_ns_; }
    // Milliseconds left, rounded up, never negative: a timeout for poll(2) or epoll_wait(2).
    int64_t left_ms() const {
        const int64_t left = at_ns_ - NowNs();
        return left <= 0 ? 0 : (left + 999'999) / 1'000'000;
    }
    // The time limit that this deadline was made from, for error messages.
    int64_t length_ms() const { return length_ms_; }

  private:
    Deadline(int64_t at_ns, int64_t length_ms) : at_ns_(at_ns), length_ms_(length_ms) {}
    int64_t at_ns_;
    int64_t length_ms_;
};

}  // namespace weft
