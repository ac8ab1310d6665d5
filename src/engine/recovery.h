// Recovery after the loss of other ranks: what a rank does from the failed step until it is ready
// again.
//
// Every rank that fails in a step or in loading calls Recover. If the cluster may recover
// (ClusterOptions::rejoin_ms, elastic), the rank joins the next epoch (Cluster::NextEpoch). A rank
// whose shard and place on its host are the same keeps its weights (Rank::Serves). Other ranks load
// their shards. The KV cache is empty afterwards; the engine recomputes its sequences from their
// tokens. Ranks that join (Cluster::Admit) run the same code. Thread: as Rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/job.h"
#include "engine/rank/rank.h"

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

// The layout that the user requested, to which the job returns when it has enough ranks again.
struct Asked {
    Job job;
    int ranks = 1;
};

// The files of rank 0's model and adapters, by which rank 0 notices that they were replaced.
struct RankFiles {
    struct One {
        FileStamp stamp;
        bool partial = false;  // 'weft pull --shard' may add to the file
    };
    std::vector<One> files;
    ModelIdentity identity;
};
RankFiles FilesOf(const Rank& rank);

// Makes `rank` if it is null, then calls Rank::Enter. files: the files of earlier epochs; nullopt:
// this is the first epoch. Errors: errors of Rank; kDenied (the files of rank 0 have changed);
// pass them to Recover.
Status OpenRank(const Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                const std::optional<RankFiles>& files = std::nullopt);

// Starts rank 0: calls OpenRank and, if another rank is lost meanwhile, Recover. Errors: why the
// job ended; the cluster already has the error.
Status OpenFirstRank(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                     std::vector<Recovery>& recoveries);

// Ends the job from rank 0: step `number` makes all ranks send their reports and end. On success
// `rank` is null. Errors: as OpenFirstRank.
Result<std::vector<RankReport>> EndJob(int64_t number, cluster::Cluster& cluster,
                                       std::unique_ptr<Rank>& rank);

// Recovers from `error` if it is the loss of a rank. On success, `rank` is ready again and `job` is
// the job of the new epoch. If another rank is lost during recovery, starts again, a few times.
// Rank 0 logs one line and appends to `recoveries`. Errors: `error` itself if the cluster does not
// recover; otherwise the error that ended the job, which the cluster already has.
// asked: given only on rank 0 of a job that ranks may join. If workers join and the layout with
// them fails, the job returns to the previous layout.
Status Recover(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank, Error error,
               std::vector<Recovery>& recoveries, const Asked* asked = nullptr);

// The job for the next epoch. kept: the ranks of the next epoch, ascending. A number below `ranks`
// is a rank of the previous epoch, which had `ranks` ranks; a higher number is a new rank. Keeps
// the layout and the ranks' shares if possible. If there are as many ranks as the user requested,
// uses the layout of `asked` (may be null). rank: has the model; if fewer ranks remain, and the
// model cannot be cut for the layout but can be cut into stages, uses stages. Null: the layout is
// not checked. identities: of the previous ranks' devices (rank.h), by rank; empty: unknown. Ranks
// of unlike devices become stages. Errors: kUsage.
Result<Job> ReplanJob(const Job& job, int ranks, const std::vector<int>& kept,
                      const Asked* asked = nullptr, const Rank* rank = nullptr,
                      const std::vector<std::string>& identities = {});
// ReplanJob with the job as JSON, for ClusterOptions::replan.
Result<std::string> ReplanText(const std::string& job, int ranks, const std::vector<int>& kept);
// The job after `more` ranks have joined the ranks of `job`. Errors: as ReplanJob.
Result<Job> GrownJob(const Job& job, int ranks, int more, const Asked& asked, const Rank& rank);
// Largest n <= waiting for which the model can be sharded over ranks + n ranks. Errors: kUsage,
// kUnsupported: the model cannot be sharded over ranks + 1 ranks; the message states the reason.
Result<int> SpaceFor(int waiting, const Job& job, int ranks, const Asked& asked, const Rank& rank);

}  // namespace weft::engine
