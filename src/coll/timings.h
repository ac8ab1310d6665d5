// Summary of a series of timings, in the terms of perftest, in microseconds.
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

// Sorts the samples. Without samples: zeros.
Timings Summarize(std::span<float> samples_us);

// Duration of one measurement.
struct Budget {
    int64_t iterations = 0;  // 0: as many as fit into `seconds`
    double seconds = 0.05;
};
inline constexpr int64_t kLeastIterations = 20;
inline constexpr int64_t kMostIterations = 100'000;

// Number of iterations that take `each_s` each; at most kMostIterations. If the budget is a time,
// at least kLeastIterations, unless these would take five times the budget.
int64_t IterationsFor(const Budget& budget, double each_s);

// Whether the iterations since `begin_ns` (NowNs) took several times their budget, so that the rest
// must be skipped. The margin allows for a slow start. False if the number of iterations is fixed.
bool IsSpent(const Budget& budget, int64_t begin_ns);

}  // namespace weft::coll
