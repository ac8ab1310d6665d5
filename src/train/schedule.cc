#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace weft::train {
namespace {

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 6> kScheduleNames = {{
    {ScheduleKind::kConstant, "constant"},
    {ScheduleKind::kLinear, "linear"},
    {ScheduleKind::kCosine, "cosine"},
    {ScheduleKind::kWarmupLr, "WarmupLR"},
    {ScheduleKind::kWarmupDecayLr, "WarmupDecayLR"},
    {ScheduleKind::kWarmupCosineLr, "WarmupCosineLR"},
}};

double Cosine(double part) {
    return (1 + std::cos(std::numbers::pi * part)) / 2;
}

// The remaining share of the difference between the highest and the end rate.
double OwnDecay(const Schedule& schedule, int64_t step) {
    const double length =
        static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
    const double part =
        std::clamp(static_cast<double>(step - schedule.warmup_steps) / length, 0.0, 1.0);
    return schedule.kind == ScheduleKind::kCosine ? Cosine(part) : 1 - part;
}

double OwnRate(const Schedule& schedule, int64_t step) {
    if (step < schedule.warmup_steps) {
        return schedule.rate * static_cast<double>(step + 1) /
               static_cast<double>(schedule.warmup_steps);
    }
    if (schedule.kind == ScheduleKind::kConstant) return schedule.rate;
    return schedule.end + (schedule.rate - schedule.end) * OwnDecay(schedule, step);
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
    return {};
}

double LearningRate(const Schedule& schedule, int64_t step) {
    WEFT_CHECK(step >= 0);
    switch (schedule.kind) {
        case ScheduleKind::kConstant:
        case ScheduleKind::kLinear:
        case ScheduleKind::kCosine: return OwnRate(schedule, step);
        case ScheduleKind::kWarmupLr:
        case ScheduleKind::kWarmupDecayLr:
        case ScheduleKind::kWarmupCosineLr: return DeepSpeedRate(schedule, step);
    }
    return 0;
}

}  // namespace weft::train
