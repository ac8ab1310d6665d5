#include "coll/timings.h"

#include <algorithm>
#include <cmath>

#include "base/deadline.h"

namespace weft::coll {
namespace {

// The smallest sample that at least the share `part` of all do not exceed. Sorted, not empty.
double Quantile(std::span<const float> sorted, double part) {
    const double rank = std::ceil(part * static_cast<double>(sorted.size()));
    const size_t at = static_cast<size_t>(std::max(rank, 1.0)) - 1;
    return static_cast<double>(sorted[std::min(at, sorted.size() - 1)]);
}

}  // namespace

Timings Summarize(std::span<float> samples_us) {
    Timings result;
    if (samples_us.empty()) return result;
    std::ranges::sort(samples_us);
    const double count = static_cast<double>(samples_us.size());
    double sum = 0;
    for (float us : samples_us) sum += static_cast<double>(us);
    result.average_us = sum / count;
    double squares = 0;
    for (float us : samples_us) {
        const double off = static_cast<double>(us) - result.average_us;
        squares += off * off;
    }
    result.iterations = static_cast<int64_t>(samples_us.size());
    result.min_us = static_cast<double>(samples_us.front());
    result.max_us = static_cast<double>(samples_us.back());
    result.typical_us = Quantile(samples_us, 0.5);
    result.stdev_us = std::sqrt(squares / count);
    result.p99_us = Quantile(samples_us, 0.99);
    result.p999_us = Quantile(samples_us, 0.999);
    return result;
}

int64_t IterationsFor(const Budget& budget, double each_s) {
    if (budget.iterations > 0) return std::min(budget.iterations, kMostIterations);
    const double each = std::max(each_s, 1e-9);
    const double fit = budget.seconds / each;
    const double least = std::min(static_cast<double>(kLeastIterations), 5 * fit);
    const double wanted = std::max({fit, least, 1.0});
    return static_cast<int64_t>(std::min(wanted, static_cast<double>(kMostIterations)));
}

bool IsSpent(const Budget& budget, int64_t begin_ns) {
    constexpr double kTimes = 5;  // IterationsFor's minimum may take as long
    return budget.iterations == 0 && SecondsSince(begin_ns) > kTimes * budget.seconds;
}

}  // namespace weft::coll
