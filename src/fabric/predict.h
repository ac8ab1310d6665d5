// What collectives over the ranks should take, by what their links were measured to do: the model
// of coll/seconds.h, which `weft plan` uses too, over tiers that are measured instead of described.
#pragma once

#include <optional>

#include "coll/seconds.h"
#include "fabric/job.h"

namespace weft::fabric {

// Bytes of the puts that tiers are made of: one that is all latency, one that is all bandwidth.
inline constexpr int64_t kSmallPut = 64, kLargePut = 1 << 20;

// Ranks by the hosts of the reports (those joined by shm are on one, whatever it is called), which
// are of NetOp::kLatency (puts of kSmallPut) and of NetOp::kBandwidth (of kLargePut) over all pairs
// of the same ranks. A tier is as slow as its slowest link, in both directions. Ranks of one host
// share its link to others, so that the rate of the tier between hosts is that of one link. Nothing
// where a pair was not measured.
std::optional<coll::TierGroup> GroupOf(const NetReport& latency, const NetReport& bandwidth);

}  // namespace weft::fabric
