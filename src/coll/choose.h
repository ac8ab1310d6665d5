// Chooses an algorithm for sizes that were not measured, by a model that predicts the time
// (seconds.h).
#pragma once

#include <optional>
#include <span>

#include "coll/seconds.h"
#include "coll/tuning.h"

namespace weft::coll {

// Computes latency and bandwidth of the links of a group of ranks, which must all be of one kind,
// from measured all_reduces (the rows with a time): a least-squares fit of relative errors.
// nullopt: fewer than two sizes were measured, or the fitted bandwidth is not positive.
std::optional<Tier> FitTier(int ranks, std::span<const TuningRow> rows);

// The fastest of `candidates` for this group; among equally fast ones, the first. There must be at
// least one candidate, and none may be kAuto.
Algorithm FastestAllReduce(const TierGroup& group, std::span<const Algorithm> candidates,
                           double bytes);

}  // namespace weft::coll
