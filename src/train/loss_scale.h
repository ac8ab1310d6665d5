// Loss scaling (Micikevicius et al. 2018) keeps small gradients representable in float16. The
// gradient of the loss is multiplied by the scale before the backward pass, and gradients are
// divided by it before use. If any gradient is not finite, all ranks skip the step and lower the
// scale; a window of steps without overflow doubles it. Every rank has its own LossScaler and feeds
// it the same events, so the scales agree.
//
// The defaults are those of torch.amp.GradScaler; the options below state how DeepSpeed's dynamic
// scaling differs.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace weft::train {

struct LossScaleOptions {
    double fixed = 0;  // above 0: the scale never changes
    double initial = 0x1p16;
    int64_t window = 2000;     // steps without overflow before the scale is doubled
    bool first_counts = true;  // false (DeepSpeed): the first step after an overflow does not count
    int64_t hysteresis = 1;    // overflows until the scale is lowered, counted since its last
                               // doubling
    bool refills = false;      // a step without overflow resets that count
    double least = 1;
};

// Errors: kUsage, naming the flags.
Status CheckLossScale(const LossScaleOptions& options);

// The state in a checkpoint.
struct LossScaleState {
    double scale = 1;
    int64_t steps = 0;       // since the last overflow
    int64_t hysteresis = 1;  // overflows left until the scale is lowered
    bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
  public:
    // Precondition: CheckLossScale accepts the options.
    explicit LossScaler(const LossScaleOptions& options);

    double scale() const { return state_.scale; }
    const LossScaleState& state() const { return state_; }
    // Restores the state of a checkpoint. A fixed scale stays as it is. Errors: kCorrupt.
    Status Restore(const LossScaleState& state);

    // Call after a step that was applied.
    void Made();
    // Call after a step that overflowed and is skipped. False: this overflow should lower the
    // scale, but the scale is already at the minimum. (A fixed scale is never lowered and always
    // returns true.)
    bool Overflowed();

  private:
    LossScaleOptions options_;
    LossScaleState state_;
};

}  // namespace weft::train
