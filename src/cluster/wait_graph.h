// Where the ranks of a job stand, and whether they can ever go on.
//
// A rank either computes, or its stepping thread waits: for ranks whose data (or word) it needs, or
// for a thread of its own that waits in turn. From what all ranks say of themselves, rank 0 finds
// those that no rank outside can free: the ranks of a circle of waits, and whoever waits for them.
// A rank that computes frees itself in the end, and so does whoever waits for it alone; so a long
// step, a slow machine, a pipeline behind a slow stage and an idle server are never stuck.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/root_cause.h"

namespace weft::cluster {

struct RankWaits {
    // What the stepping thread waits for; it goes on once all of them have come. Empty: it
    // computes, or awaits_own.
    std::vector<LongWait> waits{};
    // What threads beside it wait for. Any of them may be the one that it awaits.
    std::vector<LongWait> beside{};
    bool awaits_own = false;  // the stepping thread waits for one of those threads

    bool operator==(const RankWaits&) const = default;
};

// The ranks (ascending) that can't go on, where a wait counts once nothing of it has moved for
// `least_ms`. Empty: somebody who is waited for may still go on.
std::vector<int> FindDeadlock(std::span<const RankWaits> by_rank, int64_t least_ms);

// One circle of waits: `rank` waits for the next one's rank, the last for the first's.
struct CycleWait {
    int rank = 0;
    LongWait wait{};
};
// stuck: as StuckRanks returned it, not empty.
std::vector<CycleWait> CycleOf(std::span<const RankWaits> by_rank, std::span<const int> stuck);

// "all_reduce #12 of step 9", or of the control plane "'checkpoint'".
std::string OpOf(const LongWait& wait);

}  // namespace weft::cluster
