// What a series of timings comes to, in the terms of perftest: the units are microseconds.
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
           p999_us = 0;  // the sample that so many of a hundred, a thousand don't exceed
};

// Sorts the samples. None give zeros.
Timings Summarize(std::span<float> samples_us);

// How long to measure one thing.
struct Budget {
    int64_t iterations = 0;  // 0: as many as fit into `seconds`
    double seconds = 0.05;
};
inline constexpr int64_t kLeastIterations = 20;
inline constexpr int64_t kMostIterations = 100'000;

// Iterations that take `each_s` apiece; at most kMostIterations, and where the time decides at
// least kLeastIterations unless those take five times the budget.
int64_t IterationsFor(const Budget& budget, double each_s);

// Whether iterations that began at `begin_ns` (NowNs) took so much longer than their budget that
// the rest is left out: several times, so that a slow start leaves none out. Never where the number
// is asked for.
bool IsSpent(const Budget& budget, int64_t begin_ns);

}  // namespace weft::coll
