// Chooses an algorithm for unmeasured sizes, by the model of its time (seconds.h).
#pragma once

#include <optional>
#include <span>

#include "coll/seconds.h"
#include "coll/tuning.h"

namespace weft::coll {

// Fits the links of a group of ranks, all of one kind, to measured all_reduces (rows with a time):
// least squares of latency and seconds per byte, with relative errors. nullopt: fewer than two
// sizes, or no positive bandwidth fits.
std::optional<Tier> FitTier(int ranks, std::span<const TuningRow> rows);

// The fastest algorithm for that group; among equals the first. candidates: at least one, no kAuto.
Algorithm FastestAllReduce(const TierGroup& group, std::span<const Algorithm> candidates,
                           double bytes);

}  // namespace weft::coll
