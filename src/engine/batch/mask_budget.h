// What masks of grammars may take of the engine's loop, which all requests wait for: they are made
// between its steps, and a grammar can be written so that each mask takes a while.
//
// Counted in the steps of grammar/matcher.h (some 20 to 30 ns each), so that a busy machine
// ends no more requests than an idle one. The loop earns kStepsASecond for the time of its own
// steps, and masks spend them: so the others keep half of their speed, but for kMost at once. When
// there is nothing left, whoever has spent more than kFree itself is ended, or more than kSure
// where what all have spent of such beginnings is beyond kFreeASecond: many requests that begin at
// once are no way around it. (One that runs alone is never ended.) Thread: the loop's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::engine {

class MaskBudget {
  public:
    static constexpr int64_t kStepsASecond = 30'000'000;
    static constexpr int64_t kMost = 8'000'000;  // saved for a moment of need: 0.2 s
    static constexpr int64_t kFree = 500'000;    // of each request
    static constexpr int64_t kSure = 20'000;     // of each, whatever others begin
    static constexpr int64_t kFreeASecond = 8 * kFree;

    void Earn(double step_s) {
        const double earned = step_s * static_cast<double>(kStepsASecond);
        left_ = std::min(kMost, left_ + static_cast<int64_t>(std::min(earned, 1e12)));
        const double free = step_s * static_cast<double>(kFreeASecond);
        free_ = std::min(kFreeASecond, free_ + static_cast<int64_t>(std::min(free, 1e12)));
    }
    // own: what the request has spent so far, and from now on. False: it has to end.
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
