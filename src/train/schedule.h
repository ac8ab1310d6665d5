// Computes learning rates from the number of the step.
//
// Step s is the number of updates already made: 0 for the first update. Weft's own schedules, with
// w = warmup_steps and n = total_steps:
//   s < w      rate * (s + 1) / w                (the first update has a rate above 0)
//   constant   rate
//   linear     end_rate + (rate - end_rate) * (1 - p)
//   cosine     end_rate + (rate - end_rate) * (1 + cos(pi p)) / 2
//   with p = (s - w) / (n - w), at most 1
// DeepSpeed's schedules (deepspeed/runtime/lr_schedules.py of 0.19) use t = s - 1. DeepSpeed's
// scheduler steps after the update, so the first two updates both have the lowest rate. With W =
// max(2, w) and g(t) = ln(t + 1) / ln W, or t / W for linear warm-up:
//   WarmupLR        t < 0: warmup_min; t < W: warmup_min + (rate - warmup_min) g(t); then rate
//   WarmupDecayLR   the same, but from W on g is (n - t) / max(1, n - W), at least 0
//   WarmupCosineLR  t < 0: 0; t < W: rate * (warmup_min + (1 - warmup_min) g(t)); then
//                   rate * (end + (1 - end) (1 + cos(pi p)) / 2), p = (t - W + 1) / max(1, n - W),
//                   at most 1; warmup_min and end are ratios of rate here
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace weft::train {

enum class ScheduleKind {
    kConstant,
    kLinear,
    kCosine,
    kWarmupLr,
    kWarmupDecayLr,
    kWarmupCosineLr,
};

// "constant", "linear", "cosine", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR".
std::string_view ScheduleName(ScheduleKind kind);
std::optional<ScheduleKind> FindSchedule(std::string_view name);

struct Schedule {
    ScheduleKind kind = ScheduleKind::kConstant;
    double rate = 0;           // the highest rate, which the warm-up reaches
    double end = 0;            // linear, cosine: a rate; WarmupCosineLR: a ratio
    double warmup_min = 0;     // WarmupLR, WarmupDecayLR: a rate; WarmupCosineLR: a ratio
    bool log_warmup = true;    // DeepSpeed's schedules: logarithmic warm-up
    int64_t warmup_steps = 0;  // constant, linear, cosine: may be 0
    int64_t total_steps = 0;   // linear, cosine, WarmupDecayLR, WarmupCosineLR

    bool operator==(const Schedule&) const = default;
};

// Errors: kUsage: a negative or infinite rate, or a missing total_steps.
Status CheckSchedule(const Schedule& schedule);

// Precondition: step >= 0 and CheckSchedule passed. Returns a rate from 0 to schedule.rate.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace weft::train
