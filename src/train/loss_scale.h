// Loss scaling (Micikevicius et al. 2018) keeps small gradients representable in float16. The
// gradient of the loss is multiplied by the scale before the backward pass, and gradients are
// divided by the scale before use. If any gradient is not finite (an overflow), all ranks skip the
// step and lower the scale. After `window` steps without overflow, the scale is doubled. Every rank
// has its own LossScaler and makes the same calls, so all ranks have the same scale.
//
// The defaults equal torch.amp.GradScaler's; the options below state how DeepSpeed's dynamic
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
                               // in `window`
    int64_t hysteresis = 1;    // number of overflows, since the scale was last doubled, after which
                               // it is lowered
    bool refills = false;      // a step without overflow resets this count
    double least = 1;
};

// Errors: kUsage; the message names the flags.
Status CheckLossScale(const LossScaleOptions& options);

// The scaler's state, as stored in a checkpoint.
struct LossScaleState {
    double scale = 1;
    int64_t steps = 0;       // steps since the last overflow
    int64_t hysteresis = 1;  // remaining overflows until the scale is lowered
    bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
  public:
    // Precondition: CheckLossScale accepts the options.
    explicit LossScaler(const LossScaleOptions& options);

    double scale() const { return state_.scale; }
    const LossScaleState& state() const { return state_; }
    // Restores the state from a checkpoint, except a fixed scale, which keeps the value of the
    // options. Errors: kCorrupt.
    Status Restore(const LossScaleState& state);

    // Call after a step that was applied.
    void Made();
    // Call after a step that overflowed and is skipped. Returns false if the scale should be
    // lowered, but is already at the minimum. (With a fixed scale, which is never lowered, returns
    // true.)
    bool Overflowed();

  private:
    LossScaleOptions options_;
    LossScaleState state_;
};

}  // namespace weft::train
