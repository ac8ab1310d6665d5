// Finds ranks of a job that can never continue.
//
// A rank's stepping thread is the thread that runs the job. It either computes or waits: for ranks
// whose data (or message) it needs, or for another thread of its process, which may wait for ranks.
// From all ranks' waits, rank 0 finds the ranks that no other rank can free: the ranks of a cycle
// of waits, and the ranks that wait for that cycle. A computing rank continues at some time, and so
// does a rank that waits only for a computing rank. A long step, a slow machine, a pipeline behind
// a slow stage and an idle server are therefore never stuck.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/watch/root_cause.h"

namespace weft::cluster {

struct RankWaits {
    // Waits of the stepping thread, which continues once all of them have ended. Empty if it
    // computes, or awaits_own.
    std::vector<LongWait> waits{};
    // Waits of other threads of the process.
    std::vector<LongWait> beside{};
    bool awaits_own = false;  // the stepping thread waits for one of those threads

    bool operator==(const RankWaits&) const = default;
};

// The ranks (ascending) that can't continue. A wait counts only if no part of its data has moved
// for `least_ms`. Empty without a deadlock.
std::vector<int> FindDeadlock(std::span<const RankWaits> by_rank, int64_t least_ms);

// A cycle of waits: each entry's `rank` waits for the next entry's, the last for the first's.
struct CycleWait {
    int rank = 0;
    LongWait wait{};
};
// stuck: as FindDeadlock returned it, not empty.
std::vector<CycleWait> CycleOf(std::span<const RankWaits> by_rank, std::span<const int> stuck);

// "all_reduce #12 of step 9", or, for a collective call over the control connections,
// "'checkpoint'".
std::string OpOf(const LongWait& wait);

}  // namespace weft::cluster
