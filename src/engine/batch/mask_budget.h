// MaskBudget: limits the time that grammar masks take from the engine's loop. The loop computes
// masks between its steps, so all requests wait for them, and a grammar can make each mask slow.
//
// The unit is a step of grammar/matcher.h (20 to 30 ns), so the limit does not depend on how busy
// the machine is. The loop earns kStepsASecond for each second of its own steps, saves at most
// kMost, and spends the savings on masks; other requests thus keep half of their speed. When the
// savings are spent, the engine ends a request that has itself spent more than kFree. It also ends
// a request above kSure while the requests above kSure together spend more than kFreeASecond; this
// bounds many requests that begin at once. The engine exempts a request that runs alone. Thread:
// the loop's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::engine {

class MaskBudget {
  public:
    static constexpr int64_t kStepsASecond = 30'000'000;
    static constexpr int64_t kMost = 8'000'000;  // most savings: 0.2 s
    static constexpr int64_t kFree = 500'000;    // per request
    static constexpr int64_t kSure = 20'000;     // per request, whatever the other requests spend
    static constexpr int64_t kFreeASecond = 8 * kFree;

    void Earn(double step_s) {
        const double earned = step_s * static_cast<double>(kStepsASecond);
        left_ = std::min(kMost, left_ + static_cast<int64_t>(std::min(earned, 1e12)));
        const double free = step_s * static_cast<double>(kFreeASecond);
        free_ = std::min(kFreeASecond, free_ + static_cast<int64_t>(std::min(free, 1e12)));
    }
    // own: steps that the request has spent; Spend adds to it. False: the request must end.
    [[nodiscard]] bool Spend(uint64_t steps, int64_t& own) {
        const auto spent = static_cast<int64_t>(steps);
        left_ = std::max(left_ - spent, -kMost);
        own += spent;
        if (left_ >= 0 || own <= kSure) return true;
        free_ = std::max(free_ - spent, -kFreeASecond);
        return own <= kFree && free_ >= 0;
    }

  private:
    int64_t left_ = kMost;
    int64_t free_ = kFreeASecond;
};

}  // namespace weft::engine
