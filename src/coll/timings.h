// Summary of a series of timings in microseconds, with the names that perftest uses.
#pragma once

#include <cstdint>
#include <span>

namespace weft::coll {

struct Timings {
    int64_t iterations = 0;
    double min_us = 0, max_us = 0;
    double typical_us = 0;  // the median
    double average_us = 0, stdev_us = 0;
    double p99_us = 0,
           p999_us = 0;  // percentiles: 99 of 100, 999 of 1000 samples are at most this
};

// Sorts the samples. All results are 0 if there are no samples.
Timings Summarize(std::span<float> samples_us);

// Duration of one measurement.
struct Budget {
    int64_t iterations = 0;  // 0: as many as fit into `seconds`
    double seconds = 0.05;
};
inline constexpr int64_t kLeastIterations = 20;
inline constexpr int64_t kMostIterations = 100'000;

// Number of iterations for a budget if each iteration takes `each_s` seconds; at most
// kMostIterations. If the budget is a time, at least kLeastIterations, unless these would take more
// than five times the budget.
int64_t IterationsFor(const Budget& budget, double each_s);

// Whether the iterations since `begin_ns` (a time of NowNs) took several times their budget, so
// that the remaining ones must be skipped. Up to that multiple, a slow start is allowed. Returns
// false if the budget is a number of iterations.
bool IsSpent(const Budget& budget, int64_t begin_ns);

}  // namespace weft::coll
