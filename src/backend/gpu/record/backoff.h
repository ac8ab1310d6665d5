// If an exchange fails (host_signal.h), the following steps run without exchanges: each sum over
// ranks ends a submission. This class counts these steps. The cause of the failure may persist, so
// each new failure doubles the number of these steps. For example, exchanges never work if ranks
// share a GPU that runs the submissions of one rank at a time.
#pragma once

#include <algorithm>

namespace weft::backend::on_gpu {

class Backoff {
  public:
    static constexpr int kFirst = 100, kMost = 100'000;

    // Whether the next step runs without exchanges.
    bool waits() const { return left_ > 0; }
    void CountStep() { left_ = std::max(0, left_ - 1); }
    // Returns the number of following steps without exchanges.
    int GiveUp() {
        left_ = next_;
        next_ = std::min(2 * next_, kMost);
        return left_;
    }
    void NoteExchanged() { next_ = kFirst; }

  private:
    int left_ = 0, next_ = kFirst;
};

}  // namespace weft::backend::on_gpu
