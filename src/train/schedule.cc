#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace weft::train {
namespace {

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 7> kScheduleNames = {{
    {ScheduleKind::kConstant, "constant"},
    {ScheduleKind::kLinear, "linear"},
    {ScheduleKind::kCosine, "cosine"},
    {ScheduleKind::kWarmupStableDecay, "warmup_stable_decay"},
    {ScheduleKind::kWarmupLr, "WarmupLR"},
    {ScheduleKind::kWarmupDecayLr, "WarmupDecayLR"},
    {ScheduleKind::kWarmupCosineLr, "WarmupCosineLR"},
}};

double Cosine(double part) {
    return (1 + std::cos(std::numbers::pi * part)) / 2;
}

// The share of the difference between the highest and the end rate that remains after the warm-up.
double Remaining(const Schedule& schedule, int64_t step) {
    const bool stable = schedule.kind == ScheduleKind::kWarmupStableDecay;
    const int64_t begin =
        stable ? schedule.total_steps - schedule.decay_steps : schedule.warmup_steps;
    const auto length = static_cast<double>(std::max<int64_t>(1, schedule.total_steps - begin));
    const double part = std::clamp(static_cast<double>(step - begin) / length, 0.0, 1.0);
    if (schedule.kind == ScheduleKind::kCosine) return Cosine(part);
    if (!stable || schedule.decay_type == "linear") return 1 - part;
    return schedule.decay_type == "cosine" ? Cosine(part) : 1 - std::sqrt(part);
}

double TransformersRate(const Schedule& schedule, int64_t step) {
    const bool warms = step < schedule.warmup_steps;
    const double risen = static_cast<double>(step) /
                         static_cast<double>(std::max<int64_t>(1, schedule.warmup_steps));
    if (warms && schedule.kind != ScheduleKind::kWarmupStableDecay) return schedule.rate * risen;
    if (schedule.kind == ScheduleKind::kConstant) return schedule.rate;
    const double share = warms ? risen : Remaining(schedule, step);
    return schedule.end + (schedule.rate - schedule.end) * share;
}

double DeepSpeedRate(const Schedule& schedule, int64_t step) {
    const bool is_ratio = schedule.kind == ScheduleKind::kWarmupCosineLr;
    const auto at = static_cast<double>(step - 1);
    const auto warmup = static_cast<double>(std::max<int64_t>(2, schedule.warmup_steps));
    const auto total = static_cast<double>(schedule.total_steps);
    if (at < 0) return is_ratio ? 0 : schedule.warmup_min;
    double risen = 1;
    if (at < warmup) {
        risen = schedule.log_warmup ? std::log(at + 1) / std::log(warmup) : at / warmup;
    } else if (schedule.kind == ScheduleKind::kWarmupDecayLr) {
        risen = std::max(0.0, (total - at) / std::max(1.0, total - warmup));
    }
    if (!is_ratio) {
        return schedule.warmup_min + (schedule.rate - schedule.warmup_min) * std::min(risen, 1.0);
    }
    if (at < warmup) {
        return schedule.rate * (schedule.warmup_min + (1 - schedule.warmup_min) * risen);
    }
    const double part = std::min(1.0, (at - warmup + 1) / std::max(1.0, total - warmup));
    return schedule.rate * std::max(0.0, schedule.end + (1 - schedule.end) * Cosine(part));
}

}  // namespace

std::string_view ScheduleName(ScheduleKind kind) {
    for (const auto& [known, name] : kScheduleNames) {
        if (known == kind) return name;
    }
    return "";
}

std::optional<ScheduleKind> FindSchedule(std::string_view name) {
    for (const auto& [kind, known] : kScheduleNames) {
        if (known == name) return kind;
    }
    return std::nullopt;
}

std::vector<std::string_view> ScheduleNames() {
    std::vector<std::string_view> names;
    for (const auto& [kind, name] : kScheduleNames) names.push_back(name);
    return names;
}

Schedule ForRun(const Schedule& schedule, int64_t steps) {
    Schedule run = schedule;
    if (run.total_steps == 0) run.total_steps = steps;
    const auto share = [&](double ratio) {
        return static_cast<int64_t>(std::ceil(static_cast<double>(run.total_steps) * ratio));
    };
    if (run.warmup_ratio > 0) run.warmup_steps = share(std::exchange(run.warmup_ratio, 0));
    if (run.end_ratio > 0) run.end = run.rate * std::exchange(run.end_ratio, 0);
    if (run.kind == ScheduleKind::kWarmupStableDecay && run.decay_steps == 0) {
        run.decay_steps = share(run.decay_ratio);
    }
    return run;
}

Status CheckScheduleOptions(const Schedule& schedule) {
    const auto is_share = [](double ratio) { return ratio >= 0 && ratio <= 1; };
    if (!is_share(schedule.warmup_ratio) || !is_share(schedule.end_ratio) ||
        !is_share(schedule.decay_ratio)) {
        return MakeError(ErrorCode::kUsage,
                         "--warmup-ratio {}, --min-lr-rate {}, --decay-ratio {}: expected shares "
                         "from 0 to 1",
                         schedule.warmup_ratio, schedule.end_ratio, schedule.decay_ratio);
    }
    if (schedule.warmup_ratio > 0 && schedule.warmup_steps > 0) {
        return MakeError(ErrorCode::kUsage,
                         "--warmup-ratio {} and --warmup-steps {} both set the warm-up. Remove one "
                         "of the two",
                         schedule.warmup_ratio, schedule.warmup_steps);
    }
    if (schedule.end_ratio > 0 && schedule.end > 0) {
        return MakeError(ErrorCode::kUsage,
                         "--min-lr {} and --min-lr-rate {} both set the lowest rate. Remove one of "
                         "the two",
                         schedule.end, schedule.end_ratio);
    }
    constexpr std::string_view kDecays[] = {"linear", "cosine", "1-sqrt"};
    if (std::ranges::count(kDecays, schedule.decay_type) == 0) {
        return MakeError(ErrorCode::kUsage, "--decay-type {}: expected linear, cosine or 1-sqrt",
                         schedule.decay_type);
    }
    const bool falls = schedule.kind == ScheduleKind::kLinear ||
                       schedule.kind == ScheduleKind::kCosine ||
                       schedule.kind == ScheduleKind::kWarmupStableDecay;
    if (falls) return {};
    if (schedule.end_ratio > 0 ||
        (schedule.end > 0 && schedule.kind != ScheduleKind::kWarmupCosineLr)) {
        return MakeError(ErrorCode::kUsage,
                         "--min-lr with --schedule {}: the schedule does not use it. Remove it, or "
                         "use --schedule linear, cosine or warmup_stable_decay",
                         ScheduleName(schedule.kind));
    }
    return {};
}

Status CheckSchedule(const Schedule& schedule) {
    const auto name = ScheduleName(schedule.kind);
    const auto bad = [](double value) { return !std::isfinite(value) || value < 0; };
    if (bad(schedule.rate) || bad(schedule.end) || bad(schedule.warmup_min)) {
        return MakeError(ErrorCode::kUsage,
                         "schedule {}: rates are {}, {} and {}; expected finite numbers, none "
                         "below 0",
                         name, schedule.rate, schedule.end, schedule.warmup_min);
    }
    const bool ratios = schedule.kind == ScheduleKind::kWarmupCosineLr;
    const double most = ratios ? 1 : schedule.rate;
    if (schedule.end > most || schedule.warmup_min > most) {
        return MakeError(ErrorCode::kUsage,
                         "schedule {}: start rate {} and end rate {} must be at most {}, {}", name,
                         schedule.warmup_min, schedule.end, most,
                         ratios ? "as ratios of the peak rate" : "the peak rate");
    }
    const bool needs_total =
        schedule.kind != ScheduleKind::kConstant && schedule.kind != ScheduleKind::kWarmupLr;
    if (schedule.warmup_steps < 0 || schedule.total_steps < (needs_total ? 1 : 0)) {
        return MakeError(ErrorCode::kUsage,
                         "schedule {}: {} steps of warm-up out of {}; expected {} steps in all",
                         name, schedule.warmup_steps, schedule.total_steps,
                         needs_total ? "at least one" : "no negative number of");
    }
    const int64_t stable = schedule.total_steps - schedule.warmup_steps;
    if (schedule.decay_steps < 0 || (schedule.kind == ScheduleKind::kWarmupStableDecay &&
                                     schedule.decay_steps > std::max<int64_t>(0, stable))) {
        return MakeError(ErrorCode::kUsage,
                         "schedule {}: {} steps of warm-up and {} of decay; expected at most {} "
                         "steps in all. Use a smaller --warmup-steps or --decay-steps",
                         name, schedule.warmup_steps, schedule.decay_steps, schedule.total_steps);
    }
    return {};
}

double LearningRate(const Schedule& schedule, int64_t step) {
    WEFT_CHECK(step >= 0);
    switch (schedule.kind) {
        case ScheduleKind::kConstant:
        case ScheduleKind::kLinear:
        case ScheduleKind::kCosine:
        case ScheduleKind::kWarmupStableDecay: return TransformersRate(schedule, step);
        case ScheduleKind::kWarmupLr:
        case ScheduleKind::kWarmupDecayLr:
        case ScheduleKind::kWarmupCosineLr: return DeepSpeedRate(schedule, step);
    }
    return 0;
}

}  // namespace weft::train
