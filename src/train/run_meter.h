// What the updates of a run take on this rank: seconds, tokens, bytes on the wire and memory, over
// all that is done again after losses of ranks.
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

// How long a rank waits for the others' figures: of its last update some may still save a
// checkpoint.
inline constexpr int64_t kGatherPatienceMs = 600'000;

// A number of each rank, on all ranks at once. Errors: the cluster's.
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
    // Updates begin, with this trainer and saver, which outlive them. Speeds are those from here.
    void Begin(const Trainer& trainer, const Saver& saver);
    // An update begins, before its data is read.
    void BeginUpdate();
    // It is done: the line's tokens have taken its seconds, which are put into it.
    void EndUpdate(StepLine& line);
    // Update `step` was the last one of the data's epoch number `epochs`, from 1.
    void EndEpoch(int64_t step, uint64_t epochs);

    // Tokens and seconds of all updates; the median speed; and how long an epoch of so many updates
    // takes: as many as were seen to an epoch where it is 0, and all where none has ended.
    void Report(double updates_an_epoch, TrainSummary& summary) const;
    // What each rank has needed, on all ranks at once. Errors: the cluster's.
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
    Counters begin_;  // of the update
    std::vector<double> speeds_, update_s_;
    int64_t updates_ = 0, tokens_ = 0;
    uint64_t wire_bytes_ = 0;
    double seconds_ = 0, waited_s_ = 0, saving_s_ = 0;
    double updates_an_epoch_ = 0;
};

}  // namespace weft::train
