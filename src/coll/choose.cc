#include "coll/choose.h"

#include <algorithm>
#include <cmath>

namespace weft::coll {
namespace {

TierGroup GroupOver(int ranks, const Tier& tier) {
    return {ranks, 1, tier, tier};
}

}  // namespace

std::optional<Tier> FitTier(int ranks, std::span<const TuningRow> rows) {
    // The time is linear in latency and in seconds per byte: t = a latency + b slowness. Each row
    // is divided by its time, so that small and large sizes count alike.
    double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
    int measured = 0;
    for (const TuningRow& row : rows) {
        if (row.p50_us <= 0 || ranks < 2) continue;
        const auto bytes = static_cast<double>(row.max_bytes);
        const auto seconds = [&](const Tier& tier) {
            return AllReduceSeconds(GroupOver(ranks, tier), row.choice.algorithm, bytes) /
                   (row.p50_us * 1e-6);
        };
        const double a = seconds({HUGE_VAL, 1, 0}), b = seconds({1, 0, 0});
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
        ++measured;
    }
    const double determinant = aa * bb - ab * ab;
    if (measured < 2 || !(determinant > 0)) return std::nullopt;
    const double latency = (a1 * bb - b1 * ab) / determinant;
    const double slowness = (b1 * aa - a1 * ab) / determinant;
    if (!(slowness > 0)) return std::nullopt;
    return Tier{1 / slowness, std::max(latency, 0.0), 0};
}

Algorithm FastestAllReduce(const TierGroup& group, std::span<const Algorithm> candidates,
                           double bytes) {
    return *std::ranges::min_element(candidates, {}, [&](Algorithm algorithm) {
        return AllReduceSeconds(group, algorithm, bytes);
    });
}

}  // namespace weft::coll
