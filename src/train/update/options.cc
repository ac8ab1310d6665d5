#include "train/update/options.h"

#include <utility>

namespace weft::train {
namespace {

constexpr std::pair<std::string_view, UpdateKind> kNames[] = {
    {"adamw", UpdateKind::kAdamW},
    {"adam", UpdateKind::kAdam},
    {"sgd", UpdateKind::kSgd},
    {"adafactor", UpdateKind::kAdafactor},
    {"adam8bit", UpdateKind::kAdam8bit},
    {"lion", UpdateKind::kLion},
    {"schedule-free", UpdateKind::kScheduleFree},
    {"muon", UpdateKind::kMuon},
    // Names in transformers.
    {"adamw_torch", UpdateKind::kAdamW},
    {"adamw_torch_fused", UpdateKind::kAdamW},
    {"adamw_hf", UpdateKind::kAdamW},
    {"adamw_8bit", UpdateKind::kAdam8bit},
    {"adamw_bnb_8bit", UpdateKind::kAdam8bit},
    {"lion_32bit", UpdateKind::kLion},
    {"schedule_free_adamw", UpdateKind::kScheduleFree},
};

}  // namespace

std::string_view UpdateName(UpdateKind kind) {
    for (const auto& [name, of] : kNames) {
        if (of == kind) return name;
    }
    return "";
}

std::optional<UpdateKind> FindUpdate(std::string_view name) {
    for (const auto& [known, kind] : kNames) {
        if (known == name) return kind;
    }
    return std::nullopt;
}

const char* AverageKind(const UpdateOptions& options) {
    if (options.ema > 0) return "ema";
    return options.average_last > 0 ? "sum" : nullptr;
}

double KeptBytes(const UpdateOptions& options) {
    const double average = AverageKind(options) == nullptr ? 0 : 4;
    switch (options.kind) {
        case UpdateKind::kAdamW:
        case UpdateKind::kAdam:
        case UpdateKind::kScheduleFree: return average + 8;
        case UpdateKind::kLion:
        case UpdateKind::kMuon: return average + 4;
        case UpdateKind::kSgd: return average + (options.momentum > 0 ? 4 : 0);
        case UpdateKind::kAdafactor: return average;
        case UpdateKind::kAdam8bit: return average + 2 + 8.0 / 256;
    }
    return 0;
}

Status CheckUpdate(const UpdateOptions& o) {
    const auto is_part = [](double x) { return x >= 0 && x < 1; };
    if (!is_part(o.beta1) || !is_part(o.beta2) || !(o.eps > 0) || !(o.weight_decay >= 0)) {
        return MakeError(ErrorCode::kUsage,
                         "--betas {},{} --eps {} --weight-decay {}: expected betas of 0 to below "
                         "1, eps above 0, a decay of 0 or more",
                         o.beta1, o.beta2, o.eps, o.weight_decay);
    }
    if (!is_part(o.momentum) || !(o.dampening >= 0 && o.dampening <= 1)) {
        return MakeError(ErrorCode::kUsage,
                         "--momentum {}, dampening {}: expected 0 to below 1, and 0 to 1",
                         o.momentum, o.dampening);
    }
    if (!is_part(o.ema) || o.average_last < 0 || (o.ema > 0 && o.average_last > 0)) {
        return MakeError(
            ErrorCode::kUsage,
            "--ema {} --average-last {}: expected one of the two, a decay of 0 to below "
            "1, or a number of updates",
            o.ema, o.average_last);
    }
    if (o.kind == UpdateKind::kScheduleFree && (o.beta1 == 0 || AverageKind(o) != nullptr)) {
        return MakeError(ErrorCode::kUsage,
                         "--optimizer schedule-free writes the result from its own average of the "
                         "weights, by the first of --betas: expected a first beta above 0, and "
                         "neither --ema nor --average-last");
    }
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
        return MakeError(ErrorCode::kUsage, "--nesterov needs a --momentum and no dampening");
    }
    if (!(o.eps_square >= 0) || !(o.eps_scale >= 0) || !(o.clip_threshold > 0) ||
        !(o.decay_rate < 0)) {
        return MakeError(ErrorCode::kUsage,
                         "Adafactor's eps {} and {}, clip threshold {} and decay rate {}: expected "
                         "0 or more twice, above 0, below 0",
                         o.eps_square, o.eps_scale, o.clip_threshold, o.decay_rate);
    }
    return {};
}

}  // namespace weft::train
