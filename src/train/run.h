// A training run on one rank: data, updates, and what is told of them.
//
// All ranks walk the same list of batches, so nobody has to say what comes next. Rank 0 tells the
// listener; the others are silent.
// Thread: the cluster's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"
#include "train/data/loader.h"
#include "train/train_job.h"

namespace weft::train {

struct StepLine {
    int64_t step = 0, steps = 0;  // from 1 on, of so many
    double loss = 0, grad_norm = 0, learning_rate = 0;
    int64_t tokens = 0;                 // positions of this update, over all ranks
    double seconds = 0;                 // of this update, reading data included
    std::optional<double> eval_loss;    // over the test part, after this update
    std::optional<double> aux_loss;     // of experts (StepReport)
    std::optional<double> loss_scale;   // of float16
    bool skipped = false;               // it overflowed: nothing was learnt
    std::vector<SampleText> samples{};  // said after this update
    double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

struct TrainSummary {
    int64_t steps = 0, tokens = 0;  // the last update's number
    int64_t resumed_at = 0;         // updates of the checkpoint that this run went on from
    double tokens_per_s = 0;        // the median of the updates'
    double seconds = 0;             // of all updates
    // Of an epoch's updates, the mean; of all updates, where there was less than an epoch. Without
    // what was waited for checkpoints.
    double epoch_s = 0;
    std::optional<double> eval_loss;  // the last
    double eval_s = 0;                // of all evaluations
    double sample_s = 0;              // of all texts that were sampled
    // By rank: the most resident memory, and what it sent to other ranks in updates (payloads).
    std::vector<uint64_t> peak_rss_bytes, wire_bytes;
    std::vector<std::string> devices;  // by rank, as --device names them
    std::vector<double> waited_s;      // by rank: for so long passes stood still for other ranks
    // With TrainerOptions::time_ops: by rank and op what an op takes, the lower quartile of all but
    // the first time that it ran; 0 where it ran once or not at all.
    std::vector<std::vector<double>> op_s;
    double update_s = 0;  // of an update, the lower quartile
    double last_loss = 0;
    int64_t restarts = 0;  // after the loss of a rank
    int64_t skipped = 0;   // steps, of float16, since the first
    // What became of the samples of an epoch, or of what was read where that is less.
    LoaderCounts samples;
    SaveCounts saves;  // of this rank
    // A wish to stop ended it before its last update; the checkpoint to go on from.
    bool stopped = false;
    std::string stopped_at;
};

class TrainListener {
  public:
    virtual ~TrainListener() = default;
    // Loaded: what will be trained, which update is the next one of how many, and the FLOP/s of
    // all ranks' products at most (0: not known). Once more where the job goes on after a loss,
    // from an update that was told of already.
    virtual Status OnStart(const Trainer& trainer, int64_t next, int64_t steps,
                           double peak_flops_s) = 0;
    // After an update, and the evaluation where one was due.
    virtual void OnStep(const StepLine& line) = 0;
    // After the last update: the model as it is now, in float32. Errors end the job, once a
    // checkpoint has been written; if none can be, the call is repeated with `alone`: nothing else
    // has what was learnt.
    virtual Status OnTrained(const model_files::ModelSource& trained, bool alone) = 0;
    // Before weights are loaded: whether OnTrained will be able to write a model like this one.
    // Errors end the job.
    virtual Status CheckResult(const model_files::ModelSource& /*source*/) { return {}; }
    // Bytes that OnTrained will write, about. Errors end the job before its first update.
    virtual Result<uint64_t> ResultBytes(const Trainer& /*trainer*/) { return uint64_t{0}; }
};

// On rank 0: all of a job, from the launch of the ranks on. Errors: as Cluster::Launch's, and those
// of Trainer and Loader, after which the job is over on all ranks.
Result<TrainSummary> RunTraining(const cluster::ClusterOptions& where, const TrainJob& asked,
                                 TrainListener& listener);

// A worker takes part in the run until it ends.
extern const cluster::JobKind kTrainJob;

}  // namespace weft::train
