// MaskBudget: limits the time that grammar masks take from the engine's loop. A mask marks the
// tokens that a request's grammar allows next (SampleContext::allowed). The loop computes masks
// between the model's steps, so all requests wait for them, and a grammar can make each mask slow.
//
// The budget counts steps of the grammar matcher (grammar/matcher.h; 20 to 30 ns each) instead of
// time, so the limit does not depend on how busy the machine is. For each second that the model's
// steps take, the budget grows by kStepsASecond, up to kMost. Masks use it up; other requests thus
// keep at least half of their speed. While the budget is used up, the engine ends a request that
// has itself used more than kFree. The engine also ends a request that has used more than kSure, if
// all such requests together use more than kFreeASecond per second; this bounds many requests that
// begin at once. The engine exempts a request that runs alone. Thread: the thread of the loop.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::engine {

class MaskBudget {
  public:
    static constexpr int64_t kStepsASecond = 30'000'000;
    static constexpr int64_t kMost = 8'000'000;  // largest budget: 0.2 s
    static constexpr int64_t kFree = 500'000;    // per request
    static constexpr int64_t kSure = 20'000;     // per request, whatever the other requests spend
    static constexpr int64_t kFreeASecond = 8 * kFree;

    void Earn(double step_s) {
        const double earned = step_s * static_cast<double>(kStepsASecond);
        left_ = std::min(kMost, left_ + static_cast<int64_t>(std::min(earned, 1e12)));
        const double free = step_s * static_cast<double>(kFreeASecond);
        free_ = std::min(kFreeASecond, free_ + static_cast<int64_t>(std::min(free, 1e12)));
    }
    // Subtracts the matcher steps of one mask. own: all matcher steps of the request; Spend adds to
    // it. Returns false if the request must end.
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
