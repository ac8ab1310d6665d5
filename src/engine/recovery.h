// Recovery: a rank survives the loss of others, from a failed step until it is ready again.
//
// Every rank that fails in a step or in loading calls Recover. If the cluster may recover
// (ClusterOptions::rejoin_ms, elastic), the rank joins the next epoch (Cluster::NextEpoch). A rank
// with the same place keeps its weights. A new rank, or one whose shard changed with the number of
// ranks, loads its shard. The KV cache is empty afterwards; rank 0 recomputes the tokens. Ranks
// that join (Cluster::Admit) take the same path. Thread: as Rank.
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

// One recovery from a loss, or one admission of workers.
struct Recovery {
    std::vector<int> lost;              // rank numbers in the ended epoch
    int64_t epoch = 0;                  // the new epoch
    int ranks = 0;                      // number of ranks in the new epoch
    double seconds = 0;                 // from the failed step until all ranks were ready
    std::string text;                   // log line with all of this
    std::vector<std::string> joined{};  // "b (10.0.0.2:51840)"
};

// The layout that the user asked for. Recovered ranks make it possible again.
struct Asked {
    Job job;
    int ranks = 1;
};

// Makes a rank in `rank` if it is null, and enters it. Errors: those of Rank; pass them to Recover.
Status OpenRank(const Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank);

// Starts rank 0: OpenRank, and Recover if that loses a rank. Errors: why the job ended; the cluster
// already knows.
Status OpenFirstRank(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                     std::vector<Recovery>& recoveries);

// Ends the job from rank 0: step `number` tells all ranks to end and to send their reports. On
// success `rank` is null. Errors: as OpenFirstRank.
Result<std::vector<RankReport>> EndJob(int64_t number, cluster::Cluster& cluster,
                                       std::unique_ptr<Rank>& rank);

// Recovers from `error` if it is a loss: `rank` is ready again and `job` is that of the new epoch.
// Another loss during recovery restarts the recovery, a few times. Rank 0 logs one line and appends
// to `recoveries`. Errors: `error` itself if the cluster does not recover; else why the job ended,
// which the cluster already knows.
// asked: given only on rank 0 of a job that ranks may join. If the larger layout fails, the job
// returns to the previous one.
Status Recover(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank, Error error,
               std::vector<Recovery>& recoveries, const Asked* asked = nullptr);

// The job for the next epoch. kept: its ranks, ascending, by their numbers among the previous
// `ranks` ranks; numbers from `ranks` on are new ranks. Keeps the layout and the ranks' shares if
// possible; with as many ranks as the user asked for, uses the layout of `asked` (may be null).
// Errors: kUsage.
Result<Job> ReplanJob(const Job& job, int ranks, const std::vector<int>& kept,
                      const Asked* asked = nullptr);
// ReplanJob on the job's JSON: ClusterOptions::replan.
Result<std::string> ReplanText(const std::string& job, int ranks, const std::vector<int>& kept);
// Largest n <= waiting for which the model can be sharded over ranks + n. Errors: kUsage,
// kUnsupported: why n = 1 is impossible.
Result<int> RoomFor(int waiting, const Job& job, int ranks, const Asked& asked, const Rank& rank);

}  // namespace weft::engine
