#include "coll/time_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft::coll {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// A size that takes longer than a larger one by this factor was disturbed.
constexpr double kNoise = 1.02;
// Measurements after which another algorithm counts as faster than the built-in one.
constexpr int kConfirmed = 2;

}  // namespace

size_t TimeTable::Add(size_t bytes, Algorithm usual) {
    sizes_.push_back({bytes, usual, 0, std::vector<double>(candidates_.size(), kUnknown)});
    return sizes_.size() - 1;
}

void TimeTable::Note(size_t size, size_t candidate, double us) {
    double& least = sizes_[size].us[candidate];
    if (us > 0) least = std::min(least, us);
}

std::vector<size_t> TimeTable::Order() const {
    std::vector<size_t> order(sizes_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t place) { return sizes_[place].bytes; });
    return order;
}

double TimeTable::UsBy(const Size& size, Algorithm algorithm) const {
    const auto found = std::ranges::find(candidates_, algorithm);
    if (found == candidates_.end()) return kUnknown;
    return size.us[static_cast<size_t>(found - candidates_.begin())];
}

Algorithm TimeTable::ChoiceOf(const Size& size) const {
    const double enough = std::ranges::min(size.us) / kClearly;
    if (!std::isfinite(enough) || UsBy(size, size.usual) <= enough) return size.usual;
    const auto first = std::ranges::find_if(size.us, [&](double us) { return us <= enough; });
    return candidates_[static_cast<size_t>(first - size.us.begin())];
}

bool TimeTable::IsIsland(const std::vector<Algorithm>& choices, size_t at) {
    return at > 0 && at + 1 < choices.size() && choices[at - 1] == choices[at + 1] &&
           choices[at] != choices[at - 1];
}

std::optional<size_t> TimeTable::Doubtful() const {
    const std::vector<size_t> order = Order();
    std::vector<Algorithm> choices;
    for (const size_t place : order) choices.push_back(ChoiceOf(sizes_[place]));
    std::vector<double> larger(candidates_.size(), kUnknown);
    std::optional<size_t> found;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        const Size& size = sizes_[*at];
        const auto index = static_cast<size_t>(order.rend() - at) - 1;
        bool doubtful = ChoiceOf(size) != size.usual && size.rounds < kConfirmed;
        doubtful = doubtful || IsIsland(choices, index);
        for (size_t c = 0; c < candidates_.size(); ++c) {
            doubtful = doubtful || (std::isfinite(size.us[c]) && size.us[c] > larger[c] * kNoise);
            larger[c] = std::min(larger[c], size.us[c]);
        }
        const bool sooner = !found || size.rounds <= sizes_[*found].rounds;
        if (doubtful && size.rounds < kMostRounds && sooner) found = *at;
    }
    return found;
}

double TimeTable::UsOf(size_t size) const {
    const double us = UsBy(sizes_[size], ChoiceOf(sizes_[size]));
    return std::isfinite(us) ? us : 0;
}

std::vector<TuningRow> TimeTable::Rows() const {
    std::vector<Size> sizes;  // ascending
    for (const size_t place : Order()) sizes.push_back(sizes_[place]);
    // If all measurements of a size were disturbed, its time is at most the time of a larger size.
    std::vector<double> larger(candidates_.size(), kUnknown);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
        for (size_t c = 0; c < candidates_.size(); ++c) {
            larger[c] = size->us[c] = std::min(size->us[c], larger[c]);
        }
    }
    std::vector<Algorithm> choices;
    for (const Size& size : sizes) {
        choices.push_back(size.rounds < kConfirmed ? size.usual : ChoiceOf(size));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (!IsIsland(choices, i)) continue;
        const double around_us = UsBy(sizes[i], choices[i - 1]);
        if (around_us * kIsland <= UsBy(sizes[i], choices[i])) choices[i] = choices[i - 1];
    }
    std::vector<TuningRow> rows;
    double next_us = kUnknown;
    for (size_t i = sizes.size(); i-- > 0;) {
        next_us = std::min(next_us, UsBy(sizes[i], choices[i]));
        const double us = std::isfinite(next_us) ? next_us : 0;
        rows.push_back({sizes[i].bytes, {choices[i], WireType::kFull}, us});
    }
    std::ranges::reverse(rows);
    return rows;
}

bool IsMonotonic(const Tuning& tuning) {
    double before_us = 0;
    for (const TuningRow& row : tuning.rows(Collective::kAllReduce)) {
        if (row.p50_us <= 0) continue;
        if (row.p50_us < before_us) return false;
        before_us = row.p50_us;
    }
    return true;
}

}  // namespace weft::coll
