// RestartBudget: how many losses of ranks a server survives within a window of time. Losses before
// the window do not count. So a host that fails once a week never ends the server, but a host that
// fails again and again soon does. The caller passes the time. Thread: one caller.
#pragma once

#include <cstdint>
#include <deque>

namespace weft::engine {

class RestartBudget {
  public:
    // At most `most` losses within any `window_ms` milliseconds; 0 ms: since the server started.
    RestartBudget(int64_t most, int64_t window_ms)
        : most_(most), window_ns_(window_ms > INT64_MAX / kMs ? INT64_MAX : window_ms * kMs) {}

    // Counts a loss from which the server recovered.
    void Add(int64_t now_ns) {
        times_ns_.push_back(now_ns);
        // Older losses cannot change the result.
        while (static_cast<int64_t>(times_ns_.size()) > most_ + 1) times_ns_.pop_front();
    }
    // Number of losses within the window.
    int64_t Recent(int64_t now_ns) {
        while (window_ns_ > 0 && !times_ns_.empty() && now_ns - times_ns_.front() > window_ns_) {
            times_ns_.pop_front();
        }
        return static_cast<int64_t>(times_ns_.size());
    }
    bool Allows(int64_t now_ns) { return Recent(now_ns) < most_; }

  private:
    static constexpr int64_t kMs = 1'000'000;
    const int64_t most_, window_ns_;
    std::deque<int64_t> times_ns_;
};

}  // namespace weft::engine
