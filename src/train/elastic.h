// Elastic training (--elastic): the number of ranks changes during a run. Replicas join and leave,
// and the job continues from a checkpoint each time. The global batch, the data order, the schedule
// and the type of gradient sums stay the same; only the assignment of sequences to ranks changes.
// So the loss curve equals that of an undisturbed run, except for the order of sums.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"
#include "train/train_job.h"

namespace weft::train {

// Fixes the settings of a job that starts with `ranks` ranks and that must not depend on their
// number. Errors: kUsage, those of MakeTrainLayout, and missing requirements of --elastic.
Status FixSize(TrainJob& job, int ranks);
// Number of ranks, of `ranks`, that a fixed job can use: whole replicas, at most one per sequence
// of the batch. 0: too few ranks.
int UsableRanks(const TrainJob& job, int ranks);
// The fixed job for `ranks` ranks, with enough passes per replica for its share of the batch.
// Errors: kUsage.
Result<TrainJob> Resize(const TrainJob& job, int ranks);
// The same for a serialized job.
Result<std::string> ResizeText(const std::string& job, int ranks);

// Sets how long a job of `ranks` ranks waits for a lost rank, and with which ranks an elastic job
// continues. Fixes the size of an elastic job. Errors: those of FixSize.
Status PlanRecovery(TrainJob& job, int ranks, cluster::ClusterOptions& options);

// Rank 0's side of growth: between updates it asks waiting workers whether they can become ranks.
// Thread: as Cluster.
class Growth {
  public:
    explicit Growth(cluster::Cluster& cluster) : cluster_(cluster) {}
    // Sets the terms that newcomers must match. model: its fingerprint.
    void TellTerms(const TrainJob& job, const std::string& model, const DataIdentity& data) const;
    // Number of workers that can become ranks now and have said so; 0: none, or not yet. Cheap.
    int Ready(const TrainJob& job);
    // Ignores the waiting workers as long as the number of ranks stays, for example because no
    // checkpoint exists; the log has `why`. They may still replace a lost rank.
    void RejectJoiners(const std::string& why) { cluster_.RejectJoiners(why); }

  private:
    cluster::Cluster& cluster_;
    int waiting_ = 0, ranks_ = 0, count_ = 0;  // of the last plan
    std::string planned_;
};

// Runs on a worker: whether it can become a rank. Errors: those of the model and the data if they
// are missing here; kDenied if they differ, or if this host does not see rank 0's folder.
Status ExamineForTraining(const cluster::JoinRequest& request);

}  // namespace weft::train
