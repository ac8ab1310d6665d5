// Choosing an algorithm by the model of its seconds (seconds.h), for sizes that nobody measured.
#pragma once

#include <optional>
#include <span>

#include "coll/seconds.h"
#include "coll/tuning.h"

namespace weft::coll {

// The links of a group of ranks that are all joined alike, by all_reduces that were measured over
// them (rows with a time): least squares of latency and of seconds a byte, each time weighed as a
// share of itself. None: fewer than two sizes, or no positive bandwidth explains them.
std::optional<Tier> FitTier(int ranks, std::span<const TuningRow> rows);

// The one that takes least over that group; of equals the first. candidates: at least one, no
// kAuto.
Algorithm FastestAllReduce(const TierGroup& group, std::span<const Algorithm> candidates,
                           double bytes);

}  // namespace weft::coll
