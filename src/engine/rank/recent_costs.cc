#include "engine/rank/recent_costs.h"

#include <algorithm>
#include <cmath>

namespace weft::engine {

void RecentCosts::Add(float cost) {
    if (costs_.size() < kMost) {
        costs_.push_back(cost);
        return;
    }
    costs_[next_] = cost;
    next_ = (next_ + 1) % kMost;
}

std::vector<double> RecentCosts::Quantiles(size_t most) const {
    std::vector<float> sorted = costs_;
    std::ranges::sort(sorted);
    const size_t count = std::min(sorted.size(), most);
    std::vector<double> quantiles(count);
    for (size_t i = 0; i < count; ++i) {
        const float cost = sorted[count == 1 ? 0 : i * (sorted.size() - 1) / (count - 1)];
        quantiles[i] = std::round(static_cast<double>(cost) * 10) / 10;
    }
    return quantiles;
}

}  // namespace weft::engine
