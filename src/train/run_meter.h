// Measures the updates of a run on this rank: seconds, tokens, sent bytes and memory. Includes
// updates that are repeated after a recovery.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/cluster.h"
#include "train/run.h"
#include "train/saver.h"
#include "train/trainer.h"

namespace weft::train {

// Timeout of AllGather. It is long because some ranks may still be saving a checkpoint.
inline constexpr int64_t kGatherPatienceMs = 600'000;

// Collective: gathers one number from each rank on all ranks. Errors: the cluster's errors.
template <typename T>
Status AllGather(cluster::Cluster& cluster, const char* name, T own, std::vector<T>& all) {
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster.AllGather(name, fmt::format("{}", own), Deadline::In(kGatherPatienceMs)));
    all.clear();
    for (const std::string& text : texts) std::istringstream(text) >> all.emplace_back();
    return {};
}

class RunMeter {
  public:
    // Starts the measurements. `trainer` and `saver` must outlive this object.
    void Begin(const Trainer& trainer, const Saver& saver);
    // Call when an update begins, before its data is read.
    void BeginUpdate();
    // Call when the update is done. Sets line.seconds.
    void EndUpdate(StepLine& line);
    // Call after the last update of an epoch. step: number of the update; epochs: number of the
    // epoch, from 1.
    void EndEpoch(int64_t step, uint64_t epochs);

    // Sets tokens and seconds of all updates, the median speed, and the duration of an epoch of
    // updates_an_epoch updates (0: as many as a finished epoch had or, if none has finished, all
    // updates).
    void Report(double updates_an_epoch, TrainSummary& summary) const;
    // Collective: sets the fields of `summary` that have an entry per rank, on all ranks. Errors:
    // the cluster's.
    Status Gather(cluster::Cluster& cluster, TrainSummary& summary) const;

  private:
    struct Counters {
        int64_t now_ns = 0;
        uint64_t sent_bytes = 0;
        double waited_s = 0;  // for other ranks
        double saving_s = 0;  // for checkpoints
    };
    Counters Read() const;
    std::string OpSeconds() const;

    const Trainer* trainer_ = nullptr;
    const Saver* saver_ = nullptr;
    Counters begin_;  // at the start of the update
    std::vector<double> speeds_, update_s_;
    int64_t updates_ = 0, tokens_ = 0;
    uint64_t wire_bytes_ = 0;
    double seconds_ = 0, waited_s_ = 0, saving_s_ = 0;
    double updates_an_epoch_ = 0;
};

}  // namespace weft::train
