// A run whose number of ranks changes (--elastic): replicas come and go, from one checkpoint on.
// The batch of an update stays what it was, and so do its data, the schedule and the type that
// gradients are added up in; only who computes which of its sequences changes. So the curve is that
// of a run that nothing disturbed, but for the order of sums.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"
#include "train/train_job.h"

namespace weft::train {

// Writes into the job, which is to begin with `ranks` ranks, what is not to depend on their number.
// Errors: kUsage, those of MakeTrainLayout and what --elastic needs.
Status FixSize(TrainJob& job, int ranks);
// Of `ranks` ranks, how many a fixed job has a use for: whole replicas, at most one for each
// sequence of its batch. 0: they are too few.
int UsableRanks(const TrainJob& job, int ranks);
// The fixed job for `ranks` ranks: every replica's passes suffice for its share of the batch.
// Errors: kUsage.
Result<TrainJob> Resize(const TrainJob& job, int ranks);
// The same of a job as it travels.
Result<std::string> ResizeText(const std::string& job, int ranks);

// How long a job of `ranks` ranks waits for a lost one, and with whom an elastic one goes on. Fixes
// the size of an elastic job. Errors: those of FixSize.
Status PlanRecovery(TrainJob& job, int ranks, cluster::ClusterOptions& options);

// Rank 0's side of growth: workers that wait are asked, between updates, whether they could be
// ranks. Thread: as Cluster.
class Growth {
  public:
    explicit Growth(cluster::Cluster& cluster) : cluster_(cluster) {}
    // Tells the cluster what newcomers are compared with. model: its fingerprint.
    void TellTerms(const TrainJob& job, const std::string& model, const DataIdentity& data) const;
    // How many could be ranks now and say so; 0: none, or not yet. Cheap.
    int Ready(const TrainJob& job);
    // They wait on, for there is no place to go on from.
    void RejectJoiners(const std::string& why) { cluster_.RejectJoiners(why); }

  private:
    cluster::Cluster& cluster_;
    int waiting_ = 0, ranks_ = 0, count_ = 0;  // of the last plan
    std::string planned_;
};

// On a worker: whether it could be a rank. Errors: those of the model and the data, where these are
// not here; kDenied where they are others, or rank 0's folder is not seen.
Status ExamineForTraining(const cluster::JoinRequest& request);

}  // namespace weft::train
