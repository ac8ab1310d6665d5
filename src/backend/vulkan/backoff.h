// How many steps have a submission for each sum after an exchange was given up (host_signal.h).
// What held the host up may last, so that each time it happens again there are twice as many: where
// ranks share a GPU that runs one's submission at a time, it lasts for ever.
#pragma once

#include <algorithm>

namespace weft::backend::vulkan {

class Backoff {
  public:
    static constexpr int kFirst = 100, kMost = 100'000;

    // Whether the step to come does without exchanges.
    bool waits() const { return left_ > 0; }
    void CountStep() { left_ = std::max(0, left_ - 1); }
    // Returns how many of the steps to come wait.
    int GiveUp() {
        left_ = next_;
        next_ = std::min(2 * next_, kMost);
        return left_;
    }
    void NoteExchanged() { next_ = kFirst; }

  private:
    int left_ = 0, next_ = kFirst;
};

}  // namespace weft::backend::vulkan
