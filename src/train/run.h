// A training run on one rank: data, updates and reports.
//
// All ranks go through the same list of batches, so no message announces the next batch. Only rank
// 0 calls the listener. Thread: the cluster's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/job_kind.h"
#include "train/data/loader.h"
#include "train/train_job.h"

namespace weft::train {

struct StepLine {
    int64_t step = 0, steps = 0;  // number of this update, from 1; number of all updates
    double loss = 0, grad_norm = 0, learning_rate = 0;
    int64_t tokens = 0;                 // positions of this update, over all ranks
    double seconds = 0;                 // duration of this update, including reading data
    std::optional<double> eval_loss;    // loss over the test part after this update
    std::optional<double> aux_loss;     // auxiliary loss of experts (StepReport)
    std::optional<double> loss_scale;   // float16's loss scale
    bool skipped = false;               // gradients overflowed, so the update was not applied
    std::vector<SampleText> samples{};  // generated after this update
    std::vector<double> values{}, eval_values{};  // the values of ValueNames; eval: may be empty
    double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

struct TrainSummary {
    int64_t steps = 0, tokens = 0;  // steps: number of the last update
    int64_t resumed_at = 0;         // updates in the checkpoint that this run resumed from
    double tokens_per_s = 0;        // median over updates
    double seconds = 0;             // of all updates
    // Mean duration of the updates of one epoch; duration of all updates if they are less than an
    // epoch. Excludes waits for checkpoints.
    double epoch_s = 0;
    std::optional<double> eval_loss;  // the last
    // The lowest eval_loss, and its update.
    std::optional<double> best_eval_loss;
    int64_t best_step = 0;
    double eval_s = 0;    // seconds of all evaluations
    double sample_s = 0;  // seconds of generating samples
    // By rank: peak resident memory, and payload bytes sent to other ranks during updates.
    std::vector<uint64_t> peak_rss_bytes, wire_bytes;
    std::vector<std::string> devices;  // by rank, as --device names them
    std::vector<double> waited_s;      // by rank: seconds in which forward and backward passes
                                       // waited for other ranks
    // With TrainerOptions::time_ops, [rank][op]: seconds of the op, the lower quartile of all runs
    // but the first; 0 if the op ran at most once.
    std::vector<std::vector<double>> op_s;
    double update_s = 0;  // seconds of an update (lower quartile)
    double last_loss = 0;
    int64_t restarts = 0;  // after the loss of a rank
    int64_t skipped = 0;   // float16: skipped steps since the start
    // Sample counts of one epoch, or of all samples read if they are less than an epoch.
    LoaderCounts samples;
    SaveCounts saves;  // those of this rank
    // Whether a stop request ended the run before its last update, and the checkpoint to resume
    // from.
    bool stopped = false;
    std::string stopped_at;
};

class TrainListener {
  public:
    virtual ~TrainListener() = default;
    // The model is loaded. next: number of the next update; steps: number of all updates;
    // peak_flops_s: sum of all ranks' peaks for matrix products (0: unknown). Called again after a
    // recovery; the next update may then be one that was already reported.
    virtual Status OnStart(const Trainer& trainer, int64_t next, int64_t steps,
                           double peak_flops_s) = 0;
    // Called after an update (and the evaluation after it, if one is due).
    virtual void OnStep(const StepLine& line) = 0;
    // Called after the last update. trained: the trained model in float32. After an error, the job
    // writes a checkpoint and ends. If no checkpoint can be written, OnTrained is called again with
    // `alone`, because the trained weights are only in memory.
    virtual Status OnTrained(const model_files::ModelSource& trained, bool alone) = 0;
    // Called before weights are loaded: checks whether OnTrained can write a model like `source`.
    // An error ends the job.
    virtual Status CheckResult(const model_files::ModelSource& /*source*/) { return {}; }
    // Approximate number of bytes that OnTrained will write. An error ends the job before the first
    // update.
    virtual Result<uint64_t> ResultBytes(const Trainer& /*trainer*/) { return uint64_t{0}; }
};

// Launches the ranks and runs the whole job on rank 0. Errors: Cluster::Launch's, and those of
// Trainer and Loader, which end the job on all ranks.
Result<TrainSummary> RunTraining(const cluster::ClusterOptions& where, const TrainJob& asked,
                                 TrainListener& listener);

// Runs the job on the other ranks.
extern const cluster::JobKind kTrainJob;

}  // namespace weft::train
