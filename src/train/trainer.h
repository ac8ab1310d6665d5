// Trainer: one rank's weights, gradients and optimizer state, and one update after another.
//
// Data parallelism: every rank has all weights and its own sequences of a batch. Gradients are
// summed over the ranks; the loss is the mean over the targets of the whole batch, whatever the
// ranks and micro-batches are. ZeRO (Rajbhandari et al. 2020): from stage 1 on, a rank keeps the
// optimizer state of its share of the weights only, updates that share, and all gather them.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/training.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "formats/model_file.h"
#include "model/hyper.h"
#include "train/data/loader.h"
#include "train/optimizer.h"

namespace weft::train {

struct TrainerOptions {
    std::string model;
    int threads = 0;          // 0: all cores of the rank
    bool reference = false;   // reference kernels
    bool bf16 = false;        // matrix products of operands rounded to BF16
    int64_t sequence = 1024;  // most positions of a sequence
    int64_t micro_batch = 1;  // sequences of one pass
    int zero = 0;             // ZeRO stage: 0 or 1
    AdamOptions adam;
    double clip = 1.0;  // of the global gradient norm; 0: none
};

struct StepReport {
    double loss = 0;       // mean over the batch's targets
    double grad_norm = 0;  // before clipping
    int64_t targets = 0, positions = 0;
};

class Trainer {
  public:
    // Loads the model. Errors: those of formats and model; kUnsupported (no gradient); kUsage.
    static Result<std::unique_ptr<Trainer>> Make(const TrainerOptions& options,
                                                 cluster::Cluster& cluster);
    ~Trainer();

    // One update from this rank's part of a batch. Errors: links'; kCorrupt: a loss or a norm that
    // is no finite number, naming the step.
    Result<StepReport> Step(const Batch& batch, double learning_rate);
    const formats::ModelSource& source() const { return *source_; }
    const model::Hyper& hyper() const { return hyper_; }
    // The model as it is now: reads like the source, in float32. Borrows the Trainer.
    std::unique_ptr<formats::ModelSource> Trained();
    backend::MemoryUse memory() const;
    int64_t parameters() const;

  private:
    struct Segment {  // of the trained weights
        size_t begin = 0, end = 0;
        bool decays = false;
    };
    Trainer(const TrainerOptions& options, cluster::Cluster& cluster)
        : options_(options), cluster_(cluster) {}
    Status Plan();
    Status Load();
    Status JoinGroup();
    Result<StepReport> Accumulate(const Batch& batch);
    Status RunMicroBatch(std::span<const Sequence> sequences, float loss_gradient);
    Status Reduce(StepReport& report);
    Result<double> GradientNorm();
    Status Update(double learning_rate, double gradient_scale);
    // This rank's share of the trained weights under ZeRO, else all of them.
    size_t share_begin() const { return begins_[share_]; }
    size_t share_end() const { return begins_[share_ + 1]; }

    TrainerOptions options_;
    cluster::Cluster& cluster_;
    std::unique_ptr<formats::ModelSource> source_;
    model::Hyper hyper_;
    std::unique_ptr<backend::TrainingExecutable> training_;
    std::unique_ptr<coll::Comm> world_;
    std::vector<Segment> segments_;
    std::vector<size_t> begins_;  // of the shares, and the end of the last
    size_t share_ = 0;
    AdamState adam_;
    double loss_sum_ = 0;
    int64_t passes_ = 0;
    // Of a micro-batch.
    std::vector<int32_t> tokens_, positions_, output_rows_, targets_;
    std::vector<backend::StepSequence> sequences_;
};

}  // namespace weft::train
