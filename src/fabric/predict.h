// Predicted times of collectives, from measurements of the links: the model of coll/seconds.h, as
// in `weft plan`, over measured instead of described tiers.
#pragma once

#include <optional>

#include "coll/seconds.h"
#include "fabric/job.h"

namespace weft::fabric {

// Sizes of the puts that define a tier: one bound by latency, one by bandwidth.
inline constexpr int64_t kSmallPut = 64, kLargePut = 1 << 20;

// Groups ranks by the hosts in the reports (ranks joined by shm are on one host, even if their host
// names differ). The reports are of NetOp::kLatency (puts of kSmallPut) and NetOp::kBandwidth (of
// kLargePut), over all pairs of the same ranks. The slowest link, in both directions, sets a tier's
// speed. Ranks of one host share its link to others, so the rate between hosts is that of one link.
// nullopt: a pair was not measured.
std::optional<coll::TierGroup> GroupOf(const NetReport& latency, const NetReport& bandwidth);

}  // namespace weft::fabric
