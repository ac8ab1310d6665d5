// Predicts the times of collectives from measurements of the links, with the same model as `weft
// plan` (coll/seconds.h). A tier is a set of links of one kind: those within a host, or those
// between hosts.
#pragma once

#include <optional>

#include "coll/seconds.h"
#include "fabric/job.h"

namespace weft::fabric {

// Sizes of the puts that measure a tier: the small one is limited by latency, the large one by
// bandwidth.
inline constexpr int64_t kSmallPut = 64, kLargePut = 1 << 20;

// Groups ranks by the hosts in the reports; ranks that shm links are on one host, even if their
// host names differ. latency: a report of NetOp::kLatency with puts of kSmallPut bytes; bandwidth:
// one of NetOp::kBandwidth with puts of kLargePut bytes. Both cover all pairs of the same ranks.
// The slowest link of a tier, in the slower direction, sets the tier's speed. The ranks of a host
// share the host's network link, so the rate between hosts is the rate of one link. nullopt: a pair
// was not measured.
std::optional<coll::TierGroup> GroupOf(const NetReport& latency, const NetReport& bandwidth);

}  // namespace weft::fabric
