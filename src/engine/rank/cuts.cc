#include "engine/rank/cuts.h"

#include <algorithm>
#include <cmath>

namespace weft::engine {

float LeastOfSigma(std::span<const float> logits, float best, float n) {
    constexpr float kForbidden = 1e5f;  // below the best logit; a bias of -100 is 1e6
    const float floor = best - kForbidden;
    double sum = 0, squares = 0;
    size_t count = 0;
    for (const float logit : logits) {
        if (!(logit > floor)) continue;
        sum += double{logit};
        ++count;
    }
    const double mean = sum / static_cast<double>(count);
    for (const float logit : logits) {
        if (logit > floor) squares += (double{logit} - mean) * (double{logit} - mean);
    }
    return static_cast<float>(double{best} -
                              double{n} * std::sqrt(squares / static_cast<double>(count)));
}

void FindTypical(std::span<const float> values, float best, const Weights& weights, double share,
                 std::vector<Typical>& buffer, std::vector<uint32_t>& indices) {
    const std::span<const float> all = weights.all();
    const double log_total = std::log(weights.total());
    const auto information = [&](size_t i) { return log_total - (double{values[i]} - best); };
    double entropy = 0;
    for (size_t i = 0; i < all.size(); ++i) {
        if (all[i] > 0) entropy += double{all[i]} / weights.total() * information(i);
    }
    buffer.clear();
    for (size_t i = 0; i < all.size(); ++i) {
        if (!(all[i] > 0)) continue;
        buffer.push_back({std::abs(information(i) - entropy), static_cast<uint32_t>(i)});
    }
    std::ranges::sort(buffer, [](const Typical& a, const Typical& b) {
        return a.distance != b.distance ? a.distance < b.distance : a.index < b.index;
    });
    indices.clear();
    double sum = 0;
    for (const Typical& token : buffer) {
        indices.push_back(token.index);
        sum += double{all[token.index]};
        if (sum > share * weights.total()) break;
    }
    std::ranges::sort(indices);
}

void FindWithoutTopChoices(std::span<const float> values, const Weights& weights, double threshold,
                           std::vector<uint32_t>& indices) {
    const std::span<const float> all = weights.all();
    const auto top = [&](size_t i) { return double{all[i]} >= threshold * weights.total(); };
    size_t least = all.size();  // the least likely top choice; among equal ones, the last
    for (size_t i = 0; i < all.size(); ++i) {
        if (top(i) && (least == all.size() || values[i] <= values[least])) least = i;
    }
    indices.clear();
    for (size_t i = 0; i < all.size(); ++i) {
        if (!top(i) || i == least) indices.push_back(static_cast<uint32_t>(i));
    }
}

}  // namespace weft::engine
