// Elastic training (--elastic): the number of ranks changes during a run. Replicas join and leave;
// each time, the job continues from a checkpoint. The global batch, the data order, the schedule
// and the type of gradient sums stay the same; only the assignment of sequences to ranks changes.
// So the loss curve equals that of an undisturbed run, except for the order of sums.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"
#include "train/train_job.h"

namespace weft::engine {
struct Terms;
}  // namespace weft::engine

namespace weft::train {

// Fixes those settings of a job that must not change with the number of ranks (global batch,
// gradient type, tp and pp) to the values for `ranks` ranks, with which the job starts. Errors:
// kUsage, those of MakeTrainLayout, and missing requirements of --elastic.
Status FixSize(TrainJob& job, int ranks);
// How many of `ranks` ranks a job after FixSize can use: the ranks of whole replicas, with at most
// one replica per sequence of the batch. 0: too few ranks.
int UsableRanks(const TrainJob& job, int ranks);
// The job after FixSize, changed to run on `ranks` ranks, with enough micro-batches for each
// replica's share of the batch. Errors: kUsage.
Result<TrainJob> Resize(const TrainJob& job, int ranks);
Result<std::string> ResizeText(const std::string& job, int ranks);
// The data links that `job` (JSON) needs, for ClusterOptions::links_of.
cluster::LinkNeeds LinksOfJob(const std::string& job, int ranks);

// Sets in `options` how long a job of `ranks` ranks waits for a lost rank and, for an elastic job,
// how many ranks it can use. Calls FixSize for an elastic job. Errors: those of FixSize.
Status PlanRecovery(TrainJob& job, int ranks, cluster::ClusterOptions& options);

// Rank 0: logs that the job continues at `from` on `now` ranks, after `before` ranks.
void LogEpoch(const cluster::EpochInfo& next, int before, int now, const std::string& from);

// Adds ranks to an elastic job, on rank 0: between updates, checks whether waiting workers can
// become ranks. Thread: as Cluster.
class Growth {
  public:
    explicit Growth(cluster::Cluster& cluster) : cluster_(cluster) {}
    // Sets what a worker must match to join. model: as in engine::TermsOf.
    void SendTerms(const TrainJob& job, const engine::Terms& model, const DataIdentity& data) const;
    // Number of workers that can become ranks now; 0: none, or not all have answered yet. Cheap.
    int Ready(const TrainJob& job);
    // Ignores the waiting workers as long as the number of ranks stays the same, and logs that the
    // checkpoint of `step` could not be written. These workers may still replace a lost rank.
    void RejectJoiners(int64_t step);

  private:
    cluster::Cluster& cluster_;
    int waiting_ = 0, ranks_ = 0, count_ = 0;  // of the last plan
    std::string planned_;
};

// Checks, on a worker, whether it can become a rank. Errors: those of opening the model and the
// data on this host; kDenied if they differ from the job's, or if this host cannot access rank 0's
// folder.
Status ExamineForTraining(const cluster::JoinRequest& request);

}  // namespace weft::train
