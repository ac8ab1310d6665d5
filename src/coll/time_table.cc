#include "coll/time_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft::coll {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// A size that takes so much longer than a larger one was disturbed.
constexpr double kNoise = 1.02;
// Rounds behind which another algorithm than the built-in one is believed to be faster.
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

std::optional<size_t> TimeTable::Doubtful() const {
    const std::vector<size_t> order = Order();
    std::vector<double> larger(candidates_.size(), kUnknown);
    std::optional<size_t> found;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        const Size& size = sizes_[*at];
        bool doubtful = ChoiceOf(size) != size.usual && size.rounds < kConfirmed;
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
    std::vector<TuningRow> rows;
    std::vector<double> larger(candidates_.size(), kUnknown);
    double next_us = kUnknown;
    const std::vector<size_t> order = Order();
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        Size size = sizes_[*at];
        // What was disturbed each time takes at most as long as a larger size.
        for (size_t c = 0; c < candidates_.size(); ++c) {
            larger[c] = size.us[c] = std::min(size.us[c], larger[c]);
        }
        const Algorithm choice = size.rounds < kConfirmed ? size.usual : ChoiceOf(size);
        next_us = std::min(next_us, UsBy(size, choice));
        rows.push_back({size.bytes, {choice, Wire::kFull}, std::isfinite(next_us) ? next_us : 0});
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
