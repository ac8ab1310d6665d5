// How a rank outlives the loss of others: from a failed step to a rank that is ready again.
//
// Every rank that fails in a step or in loading calls Recover. Where the cluster was told to get
// over a loss (ClusterOptions::rejoin_ms, elastic) it joins the next epoch (Cluster::NextEpoch). A
// rank whose place is the same keeps its weights; one that is new, or whose shard changed because
// there are fewer ranks or more, loads. The KV cache is empty afterwards: rank 0 replays the
// tokens. Ranks that join (Cluster::Admit) come by the same way.
// Thread: as Rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/job.h"
#include "engine/rank.h"

namespace weft::engine {

// One loss that was got over, or workers that joined.
struct Recovery {
    std::vector<int> lost;              // by the numbers of the epoch that ended
    int64_t epoch = 0;                  // that began
    int ranks = 0;                      // in it
    double seconds = 0;                 // from the failed step until all ranks were ready
    std::string text;                   // the line that says all this
    std::vector<std::string> joined{};  // "b (10.0.0.2:51840)"
};

// What the user asked for: ranks that come back make it possible again.
struct Asked {
    Job job;
    int ranks = 1;
};

// Makes and enters a rank, for `rank` to hold. Errors: those of Rank; then Recover may help.
Status OpenRank(const Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank);

// Rank 0's way into a job: OpenRank, and Recover where that loses somebody. Errors: why the job is
// over, which the cluster knows already.
Status OpenFirstRank(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                     std::vector<Recovery>& recoveries);

// Rank 0's way out: step `number` tells all ranks to end, and their reports come back. `rank` is
// gone where that went well. Errors: as OpenFirstRank.
Result<std::vector<RankReport>> EndJob(int64_t number, cluster::Cluster& cluster,
                                       std::unique_ptr<Rank>& rank);

// Gets over `error`, if it is a loss: `rank` is ready again, `job` is that of the new epoch. A loss
// meanwhile starts it again, a few times. On rank 0 a line says what happened, and `recoveries`
// grows. Errors: `error` itself where the cluster does not recover; else why the job is over, which
// the cluster knows already.
// asked: on rank 0, where ranks may join. What they cannot be joined with is left again.
Status Recover(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank, Error error,
               std::vector<Recovery>& recoveries, const Asked* asked = nullptr);

// The job for the ranks of `kept` (old numbers, ascending; beyond `ranks`: newcomers) out of
// `ranks` ranks: the same layout if it can be, with their shares; for as many as were asked for
// that of `asked`, which may be null. Errors: kUsage.
Result<Job> ReplanJob(const Job& job, int ranks, const std::vector<int>& kept,
                      const Asked* asked = nullptr);
// The same of a job as it travels: ClusterOptions::replan.
Result<std::string> ReplanText(const std::string& job, int ranks, const std::vector<int>& kept);
// How many of `waiting` newcomers the model can be cut for, at most all. Errors: kUsage,
// kUnsupported: why it can be cut for none more.
Result<int> RoomFor(int waiting, const Job& job, int ranks, const Asked& asked, const Rank& rank);

}  // namespace weft::engine
