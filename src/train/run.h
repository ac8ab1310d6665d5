// A training run on one rank: data, updates and reports.
//
// All ranks walk the same list of batches, so the next batch needs no message. Only rank 0 calls
// the listener.
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
    int64_t step = 0, steps = 0;  // number from 1; total
    double loss = 0, grad_norm = 0, learning_rate = 0;
    int64_t tokens = 0;                 // positions of this update, over all ranks
    double seconds = 0;                 // duration of this update, including reading data
    std::optional<double> eval_loss;    // over the test part, after this update
    std::optional<double> aux_loss;     // auxiliary loss of experts (StepReport)
    std::optional<double> loss_scale;   // float16's loss scale
    bool skipped = false;               // overflow: the update was not applied
    std::vector<SampleText> samples{};  // generated after this update
    double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

struct TrainSummary {
    int64_t steps = 0, tokens = 0;  // steps: number of the last update
    int64_t resumed_at = 0;         // updates in the checkpoint that this run resumed from
    double tokens_per_s = 0;        // median over updates
    double seconds = 0;             // of all updates
    // Mean duration of an epoch's updates; of all updates if they made less than an epoch. Excludes
    // waits for checkpoints.
    double epoch_s = 0;
    std::optional<double> eval_loss;  // the last
    double eval_s = 0;                // all evaluations
    double sample_s = 0;              // all generated samples
    // By rank: peak resident memory, and payload bytes sent to other ranks during updates.
    std::vector<uint64_t> peak_rss_bytes, wire_bytes;
    std::vector<std::string> devices;  // by rank, as --device names them
    std::vector<double> waited_s;      // by rank: seconds that passes waited for other ranks
    // With TrainerOptions::time_ops, by rank and op: seconds of the op, the lower quartile without
    // its first run; 0 if it ran at most once.
    std::vector<std::vector<double>> op_s;
    double update_s = 0;  // seconds of an update, the lower quartile
    double last_loss = 0;
    int64_t restarts = 0;  // after the loss of a rank
    int64_t skipped = 0;   // float16: skipped steps since the start
    // Sample counts of an epoch, or of all samples read if fewer.
    LoaderCounts samples;
    SaveCounts saves;  // of this rank
    // A stop request ended the run before its last update; the checkpoint to resume from.
    bool stopped = false;
    std::string stopped_at;
};

class TrainListener {
  public:
    virtual ~TrainListener() = default;
    // The model is loaded: the trainer, the next update, the number of updates, and the peak FLOP/s
    // of all ranks' matrix products (0: unknown). Called again after a recovery, from an update
    // that may have been reported already.
    virtual Status OnStart(const Trainer& trainer, int64_t next, int64_t steps,
                           double peak_flops_s) = 0;
    // After an update, and its evaluation if one was due.
    virtual void OnStep(const StepLine& line) = 0;
    // After the last update: the current model in float32. An error ends the job after a checkpoint
    // has been written. If no checkpoint can be written, the call is repeated with `alone`: only
    // memory holds the trained weights.
    virtual Status OnTrained(const model_files::ModelSource& trained, bool alone) = 0;
    // Before weights are loaded: whether OnTrained can write a model like this one. Errors end the
    // job.
    virtual Status CheckResult(const model_files::ModelSource& /*source*/) { return {}; }
    // Approximate bytes that OnTrained will write. Errors end the job before its first update.
    virtual Result<uint64_t> ResultBytes(const Trainer& /*trainer*/) { return uint64_t{0}; }
};

// Launches the ranks and runs the whole job on rank 0. Errors: Cluster::Launch's, and those of
// Trainer and Loader, which end the job on all ranks.
Result<TrainSummary> RunTraining(const cluster::ClusterOptions& where, const TrainJob& asked,
                                 TrainListener& listener);

// The job on other ranks: takes part until the run ends.
extern const cluster::JobKind kTrainJob;

}  // namespace weft::train
