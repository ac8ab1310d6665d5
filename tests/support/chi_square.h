// Tests whether draws follow a distribution: chi-square as a normal deviate.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace weft::support {

// Deviation of the counts in standard deviations, by Wilson and Hilferty; 5 means one case in three
// million. Infinite if an outcome without probability was drawn. Outcomes expected fewer than ten
// times are pooled.
inline double Deviate(const std::vector<double>& exact, const std::vector<int>& counts) {
    double draws = 0, chi = 0, rest_expected = 0, rest_seen = 0;
    for (int count : counts) draws += count;
    int freedom = -1;
    const auto add = [&](double expected, double seen) {
        chi += (seen - expected) * (seen - expected) / expected;
        ++freedom;
    };
    for (size_t id = 0; id < exact.size(); ++id) {
        const double expected = exact[id] * draws;
        if (exact[id] == 0 && counts[id] > 0) return std::numeric_limits<double>::infinity();
        if (expected >= 10) {
            add(expected, counts[id]);
        } else {
            rest_expected += expected;
            rest_seen += counts[id];
        }
    }
    if (rest_expected >= 10) add(rest_expected, rest_seen);
    if (freedom < 1) return 0;
    const double f = 2.0 / (9.0 * freedom);
    return (std::cbrt(chi / freedom) - (1 - f)) / std::sqrt(f);
}

}  // namespace weft::support
