#include <cmath>

#include "kernels/dense/rows.h"

namespace weft::kernels::dense {

// (With one rank these are its stats.)
SoftmaxTotal TotalOf(const float* stats, int64_t ranks) {
    SoftmaxTotal total{stats[0], stats[1], stats[2]};
    if (ranks == 1) return total;
    for (int64_t r = 1; r < ranks; ++r) {
        total.largest = std::max(total.largest, stats[r * kSoftmaxStats]);
    }
    double sum = 0, chosen = 0;
    for (int64_t r = 0; r < ranks; ++r) {
        const float* own = stats + r * kSoftmaxStats;
        sum += double{own[1]} * std::exp(double{own[0]} - double{total.largest});
        chosen += double{own[2]};
    }
    total.sum = static_cast<float>(sum);
    total.chosen = static_cast<float>(chosen);
    return total;
}

void CrossEntropy(const CrossEntropyArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const SoftmaxTotal total =
            TotalOf(args.stats + row * args.ranks * kSoftmaxStats, args.ranks);
        args.losses[row] =
            args.targets[row] < 0 ? 0.0f : std::log(total.sum) + (total.largest - total.chosen);
    }
}

}  // namespace weft::kernels::dense
