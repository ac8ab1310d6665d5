// Loss scaling (Micikevicius et al. 2018): what lets small gradients be float16 numbers. The loss's
// gradient is multiplied by the scale before the backward pass, and gradients are divided by it
// before they are used. A step whose gradients are not all finite is skipped, on all ranks, and
// lowers the scale; a stretch of steps without such a one doubles it. Every rank keeps its own
// LossScaler and tells it the same, so that scales are the same.
//
// The defaults are those of torch.amp.GradScaler; DeepSpeed's dynamic form differs in what the
// options say.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace weft::train {

struct LossScaleOptions {
    double fixed = 0;  // above 0: the scale never changes
    double initial = 0x1p16;
    int64_t window = 2000;     // steps without overflow before the scale is doubled
    bool first_counts = true;  // DeepSpeed: a stretch's first step is not one of the window's
    int64_t hysteresis = 1;    // the overflow that lowers the scale, counted since it was doubled
    bool refills = false;      // each step without overflow begins that count again
    double least = 1;
};

// Errors: kUsage, naming the flags.
Status CheckLossScale(const LossScaleOptions& options);

// What a checkpoint keeps.
struct LossScaleState {
    double scale = 1;
    int64_t steps = 0;       // since the last overflow
    int64_t hysteresis = 1;  // what is left of it
    bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
  public:
    // Options that CheckLossScale has passed.
    explicit LossScaler(const LossScaleOptions& options);

    double scale() const { return state_.scale; }
    const LossScaleState& state() const { return state_; }
    // To go on from a checkpoint. A fixed scale stays as it is. Errors: kCorrupt.
    Status Restore(const LossScaleState& state);

    // After a step that was made.
    void Made();
    // After one that overflowed, and is skipped. False: the scale is the least already, and this
    // overflow was to lower it. (A fixed scale is never lowered, and all overflows are passed.)
    bool Overflowed();

  private:
    LossScaleOptions options_;
    LossScaleState state_;
};

}  // namespace weft::train
