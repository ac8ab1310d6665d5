// Computes learning rates from the number of the step.
//
// Step s is the number of updates already made: 0 for the first update. Schedules of transformers
// 5.24 (optimization.py), with w = warmup_steps, n = total_steps and d = decay_steps:
//   s < w                rate * s / w; warmup_stable_decay: end + (rate - end) * s / w
//   constant             rate
//   linear               end + (rate - end) * (1 - p)                 p = (s - w) / (n - w)
//   cosine               end + (rate - end) * (1 + cos(pi p)) / 2
//   warmup_stable_decay  rate; in the last d steps end + (rate - end) * f(p), p = (s - n + d) / d
//                        f(p) is 1 - p (linear), (1 + cos(pi p)) / 2 (cosine) or 1 - sqrt(p)
//   with p from 0 to 1
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
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

enum class ScheduleKind {
    kConstant,
    kLinear,
    kCosine,
    kWarmupStableDecay,
    kWarmupLr,
    kWarmupDecayLr,
    kWarmupCosineLr,
};

// "constant", "linear", "cosine", "warmup_stable_decay", "WarmupLR", "WarmupDecayLR",
// "WarmupCosineLR".
std::string_view ScheduleName(ScheduleKind kind);
std::optional<ScheduleKind> FindSchedule(std::string_view name);
std::vector<std::string_view> ScheduleNames();

struct Schedule {
    ScheduleKind kind = ScheduleKind::kConstant;
    double rate = 0;           // the highest rate, which the warm-up reaches
    double end = 0;            // of transformers' schedules: a rate; WarmupCosineLR: a ratio
    double warmup_min = 0;     // WarmupLR, WarmupDecayLR: a rate; WarmupCosineLR: a ratio
    bool log_warmup = true;    // DeepSpeed's schedules: logarithmic warm-up
    int64_t warmup_steps = 0;  // transformers' schedules: may be 0
    int64_t total_steps = 0;   // all but constant and WarmupLR
    // warmup_stable_decay
    int64_t decay_steps = 0;
    std::string decay_type = "linear";  // linear, cosine, 1-sqrt
    // Values relative to the run, which ForRun replaces.
    double warmup_ratio = 0;   // of total_steps: warmup_steps
    double end_ratio = 0;      // of rate: end
    double decay_ratio = 0.1;  // of total_steps: decay_steps, if that is 0

    bool operator==(const Schedule&) const = default;
};

// The schedule of a run with this number of updates: total_steps 0 becomes it, and ratios become
// numbers (of steps: rounded up).
Schedule ForRun(const Schedule& schedule, int64_t steps);

// Checks the options before the number of updates is known. Errors: kUsage: a ratio outside its
// range, two values for one number, or an option that the kind does not use.
Status CheckScheduleOptions(const Schedule& schedule);

// schedule: of ForRun. Errors: kUsage: a negative or infinite rate, a missing total_steps, or a
// decay that does not fit.
Status CheckSchedule(const Schedule& schedule);

// Precondition: step >= 0 and CheckSchedule passed. Returns a rate from 0 to schedule.rate.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace weft::train
