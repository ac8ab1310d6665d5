#include "train/grpo/loss.h"

#include <algorithm>
#include <cmath>

namespace weft::train {
namespace {

// As in TRL, beside the deviation.
constexpr double kLeastDeviation = 1e-4;

}  // namespace

std::vector<std::string> LossValueNames(const GrpoOptions& options) {
    std::vector<std::string> names = {"entropy", "clip_ratio/low_mean", "clip_ratio/high_mean",
                                      "clip_ratio/region_mean"};
    if (options.beta > 0) names.emplace_back("kl");
    return names;
}

std::vector<double> ValuesOf(const GrpoSums& sums, const GrpoOptions& options) {
    const auto mean = [&](GrpoSums::Name name) {
        return sums.sums[name] / std::max(1.0, sums.sums[GrpoSums::kTokens]);
    };
    std::vector<double> values = {mean(GrpoSums::kMinusLogp), mean(GrpoSums::kLow),
                                  mean(GrpoSums::kHigh),
                                  mean(GrpoSums::kLow) + mean(GrpoSums::kHigh)};
    if (options.beta > 0) values.push_back(mean(GrpoSums::kKl));
    return values;
}

GrpoLoss::GrpoLoss(const GrpoOptions& options, const GrpoBatch& batch)
    : options_(options), batch_(batch), by_token_(options.importance_level == "token") {}

void GrpoLoss::Add(double advantage, std::span<const float> losses, std::span<const float> old,
                   std::span<const float> ref, std::span<float> weights, GrpoSums& sums) const {
    const size_t count = losses.size();
    if (count == 0) return;
    const auto tokens = static_cast<double>(count);
    const auto by_options = [&] {
        if (options_.loss_type == "grpo") return 1 / (tokens * batch_.completions);
        if (options_.loss_type == "dr_grpo") return 1 / (batch_.completions * batch_.most_tokens);
        return 1 / std::max(1.0, batch_.tokens);
    };
    const double share = by_options();
    const auto change = [&](size_t t) {
        return old.empty() ? 0.0 : -double{losses[t]} - double{old[t]};
    };
    double mean = 0;
    for (size_t t = 0; t < count && !by_token_; ++t) mean += change(t) / tokens;
    double by_ratio = 0;  // the sum of derivatives by log r, which all tokens of `sequence` share
    for (size_t t = 0; t < count; ++t) {
        const double lp = -double{losses[t]};
        const double ratio = std::exp(by_token_ ? change(t) : mean);
        const double clipped = std::clamp(ratio, 1 - options_.epsilon, 1 + options_.high());
        const bool is_clipped = clipped * advantage < ratio * advantage;
        const double apart = options_.beta > 0 ? double{ref[t]} - lp : 0;
        const double k3 = std::expm1(apart) - apart;
        const double kl = options_.beta * ratio * k3;
        sums[GrpoSums::kLoss] += share * (-std::min(ratio * advantage, clipped * advantage) + kl);
        sums[GrpoSums::kTokens] += 1;
        sums[GrpoSums::kKl] += ratio * k3;
        sums[GrpoSums::kLow] += ratio < 1 - options_.epsilon && advantage < 0 ? 1 : 0;
        sums[GrpoSums::kHigh] += ratio > 1 + options_.high() && advantage > 0 ? 1 : 0;
        sums[GrpoSums::kMinusLogp] -= lp;
        const double slope = (is_clipped ? 0 : -ratio * advantage) + kl;
        const double direct = -options_.beta * ratio * std::expm1(apart);
        weights[t] = static_cast<float>(-share * (direct + (by_token_ ? slope : 0)));
        by_ratio += slope;
    }
    for (size_t t = 0; t < count && !by_token_; ++t) {
        weights[t] -= static_cast<float>(share * by_ratio / tokens);
    }
}

MeanAndDeviation MeanOf(std::span<const double> values) {
    MeanAndDeviation all;
    double count = 0;
    for (const double x : values) {
        if (std::isnan(x)) continue;
        all.mean += x;
        count += 1;
    }
    if (count == 0) return {};
    all.mean /= count;
    for (const double x : values) {
        if (!std::isnan(x)) all.deviation += (x - all.mean) * (x - all.mean);
    }
    all.deviation = count > 1 ? std::sqrt(all.deviation / (count - 1)) : 0;
    return all;
}

std::vector<double> AdvantagesOf(std::span<const double> rewards, int64_t group,
                                 const std::string& scale) {
    std::vector<double> advantages(rewards.size(), 0);
    const double of_batch = MeanOf(rewards).deviation;
    const auto size = static_cast<size_t>(group);
    for (size_t begin = 0; begin < rewards.size(); begin += size) {
        const auto own = rewards.subspan(begin, size);
        const MeanAndDeviation all = MeanOf(own);
        const double deviation = scale == "batch" ? of_batch : all.deviation;
        const double divisor = scale == "none" ? 1 : deviation + kLeastDeviation;
        for (size_t i = 0; i < own.size(); ++i) {
            const bool counts = !std::isnan(own[i]) && std::abs(own[i] - all.mean) > 1e-12;
            if (counts) advantages[begin + i] = (own[i] - all.mean) / divisor;
        }
    }
    return advantages;
}

}  // namespace weft::train
