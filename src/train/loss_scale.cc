#include "train/loss_scale.h"

#include <algorithm>

namespace weft::train {
namespace {

// Scales stay float32 numbers after one more halving or doubling.
constexpr double kLeast = 0x1p-125, kMost = 0x1p127;

bool IsScale(double x) {
    return x >= kLeast && x <= kMost;  // (no NaN)
}

}  // namespace

Status CheckLossScale(const LossScaleOptions& o) {
    if (o.fixed != 0 && !IsScale(o.fixed)) {
        return MakeError(ErrorCode::kUsage,
                         "--loss-scale {}: expected dynamic, or a number from {:g} to {:g}",
                         o.fixed, kLeast, kMost);
    }
    const bool counts = o.window >= 1 && o.hysteresis >= 1;
    if (counts && IsScale(o.initial) && o.least >= 0 && o.least <= o.initial) return {};
    return MakeError(
        ErrorCode::kUsage,
        "loss scale {:g}, minimum {:g}, window {}, hysteresis {}: expected a scale from {:g} to "
        "{:g}, a minimum not above it, a window and hysteresis of 1 or more",
        o.initial, o.least, o.window, o.hysteresis, kLeast, kMost);
}

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options),
      state_{options.fixed > 0 ? options.fixed : options.initial, 0, options.hysteresis} {
    options_.least = std::max(options.least, kLeast);
}

Status LossScaler::Restore(const LossScaleState& state) {
    if (!IsScale(state.scale) || state.steps < 0 || state.hysteresis < 1) {
        return MakeError(
            ErrorCode::kCorrupt,
            "a loss scale of {}, {} steps and a hysteresis of {}: weft saves no such state",
            state.scale, state.steps, state.hysteresis);
    }
    if (options_.fixed > 0) return {};
    // (The job that saved the state may have had other options.)
    state_ = {std::max(state.scale, options_.least), state.steps,
              std::min(state.hysteresis, options_.hysteresis)};
    return {};
}

void LossScaler::Made() {
    if (options_.fixed > 0) return;
    if (options_.refills) state_.hysteresis = options_.hysteresis;
    const int64_t counted = ++state_.steps - (options_.first_counts ? 0 : 1);
    if (counted == 0 || counted % options_.window != 0) return;
    state_.hysteresis = options_.hysteresis;
    if (state_.scale * 2 <= kMost) state_.scale *= 2;
}

bool LossScaler::Overflowed() {
    if (options_.fixed > 0) return true;
    if (state_.hysteresis == 1) {
        if (state_.scale <= options_.least) return false;
        state_.scale = std::max(state_.scale / 2, options_.least);
    } else {
        --state_.hysteresis;
    }
    state_.steps = 0;
    return true;
}

}  // namespace weft::train
