// Trainer: one rank's part of a model in training, and one update after another.
//
// The loss is the mean over the targets of the whole batch, whatever the ranks, stages and
// micro-batches are. Which part a rank has: train/parallel/layout.h; what is shared out among the
// ranks that see different data: program/zero.h. Thread: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "train/data/loader.h"
#include "train/graph.h"
#include "train/lora/lora.h"
#include "train/loss_scale.h"
#include "train/micro_batch.h"
#include "train/parallel/groups.h"
#include "train/parallel/layout.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

struct TrainerOptions {
    std::string model;
    bool from_scratch = false;  // the model is a folder without weights: they are random
    uint64_t seed = 0;          // of random weights
    int threads = 0;            // 0: all cores of the rank
    bool reference = false;     // reference kernels
    std::string device = backend::kDefaultDevice;
    DType dtype = DType::kF32;  // what is computed with (GraphOptions): kBF16, kF16
    // What gradients of matrices are added up in: "f32", dtype's own name, or "auto" (below).
    std::string grad_dtype = "auto";
    LossScaleOptions loss_scale;      // of kF16
    int64_t sequence = 1024;          // most positions of a sequence
    int64_t micro_batch = 1;          // sequences of one pass
    int64_t accumulation = 1;         // passes of an update, on each replica
    int tp = 0, pp = 0, dp = 0;       // 0: 1, 1, what is left
    int virtual_stages = 1;           // chunks of layers of each pipeline stage (pipeline.h)
    std::vector<double> split;        // shares of tensor ranks and stages, as model::MakeLayout has
    int zero = 0;                     // ZeRO stage, 0 to 3
    int64_t unit_elements = 1 << 24;  // of a ZeRO unit (program/zero.h)
    int64_t whole_elements = 0;
    // What ZeRO 2 and 3 gather and sum up runs beside the arithmetic: "on", "off", or "auto", where
    // replicas are on several hosts.
    std::string overlap = "auto";
    // none, selective, full, or auto: the first of them whose memory all ranks have.
    std::string recompute = "auto";
    LoraOptions lora;
    bool lora_without_dropout = false;  // of an adapter to go on from that was trained with it
    bool without_dropout = false;       // of a model whose config.json has some
    UpdateOptions update;
    double clip = 1.0;               // of the global gradient norm; 0: none
    bool sequence_parallel = false;  // tensor ranks share out rows between their products
    int ep = 0;                      // expert groups of the tensor ranks, as model::Layout has it
    // What the auxiliary loss of experts weighs (train/load_balance.h); below 0: what the model's
    // config asks for. Each pass has its own, which weighs as the pass's share of the targets.
    double router_aux_loss = -1;
    bool time_ops = false;  // seconds of ops are kept (op_seconds)
};

// The model that training begins from, without adapters. Errors: those of model_files::OpenModel
// and model_files::hf::OpenScratch.
Result<std::unique_ptr<model_files::ModelSource>> OpenSource(const TrainerOptions& options);

// Counts and numbers that make sense. Errors: kUsage, naming the flags.
Status CheckTrainer(const TrainerOptions& options);

// For "auto" kF32 where more than kNarrowSums gradients become one, over passes and replicas, else
// dtype: each sum in a narrow type loses what is below half of its last bit, and the more there are
// the less each of them is beside the sum.
inline constexpr int64_t kNarrowSums = 8;
// As --dtype and --grad-dtype have it: "f32".
const char* FlagOf(DType dtype);
DType GradientTypeOf(const TrainerOptions& options, int64_t replicas);

// Chunks of layers take turns by as many micro-batches as there are stages. Errors: kUsage.
Status CheckTurns(const TrainerOptions& options);
TrainLayoutOptions LayoutWordsOf(const TrainerOptions& options);
// What rank `layout.rank` holds, by chunk. Errors: those of model::PlanShards; kUnsupported (fewer
// layers than chunks).
Result<std::vector<model::Shard>> ShardsOf(const TrainLayout& layout, const model::Hyper& hyper,
                                           const model_files::ModelSource& source);

// The graph of a rank that these options ask for; overlap: shares are moved beside the arithmetic.
// `lora` of it stays null. Errors: kUsage (recompute).
Result<GraphOptions> GraphOptionsOf(const TrainerOptions& options, const TrainLayout& layout,
                                    const model::Hyper& hyper, bool overlap);

struct StepReport {
    double loss = 0;       // mean over the batch's targets
    double grad_norm = 0;  // before clipping
    int64_t targets = 0, positions = 0;
    std::optional<double> aux_loss;  // of experts, before it is weighed; the loss is without it
    // Of float16: what the loss was multiplied by. skipped: gradients overflowed, and neither
    // weights nor what the optimizer keeps were touched; the norm is no finite number.
    std::optional<double> loss_scale;
    bool skipped = false;
    int stop_requests = 0;  // ranks that wish to stop (SetStopRequest), the same number on all
    bool grows = false;     // rank 0 has newcomers (SetGrowRequest), the same on all
};

// What a checkpoint keeps beside arrays and the place in the data.
struct TrainerProgress {
    int64_t updates = 0, skipped = 0;  // steps: those that were made, and those that overflowed
    std::optional<LossScaleState> loss_scale;
};

class Trainer {
  public:
    // Loads the model. source: the model's, with or without adapters; null: opened here. Errors:
    // those of model_files and model; kUnsupported (no gradient); kUsage; kOutOfMemory.
    static Result<std::unique_ptr<Trainer>> Make(
        const TrainerOptions& options, cluster::Cluster& cluster,
        std::unique_ptr<model_files::ModelSource> source = nullptr);
    ~Trainer();

    // One update from this replica's part of a batch. Errors: links'; kCorrupt: a loss or a norm
    // that is no finite number (with a loss scale: one that no lower scale could mend), naming the
    // step, the rank and the op that made it.
    Result<StepReport> Step(const Batch& batch, double learning_rate);
    // The loss of a batch, nothing learnt. Errors as Step's.
    Result<StepReport> Evaluate(const Batch& batch);
    // The token behind `tokens` (at least one, at most a sequence): what `choose` makes of its
    // logits [vocab] on the one rank that it is called on. All ranks call it alike and get the
    // same. Errors: links', choose's.
    using ChooseToken = std::function<Result<int32_t>(std::span<const float> logits)>;
    Result<int32_t> NextToken(std::span<const int32_t> tokens, const ChooseToken& choose);

    const model_files::ModelSource& source() const { return *source_; }
    const model::Hyper& hyper() const { return hyper_; }
    const TrainerOptions& options() const { return options_; }
    const TrainLayout& layout() const { return layout_; }
    const backend::DeviceInfo& device() const { return device_->info(); }
    const TrainState& state() const { return *state_; }
    // To go on from a checkpoint: what it keeps is the caller's to fill, the weights are loaded.
    const UpdateRule& rule() const { return *rule_; }
    // Errors: kCorrupt.
    Status SetProgress(const TrainerProgress& progress);
    TrainerProgress progress() const;
    int64_t updates() const { return updates_; }
    // Called in each Step when all passes are done, before weights change. May be empty.
    void SetBeforeUpdate(std::function<Status()> hook) { before_update_ = std::move(hook); }
    // Asked in each Step and Evaluate whether this rank wishes to stop, for the report of all
    // ranks. May be empty.
    void SetStopRequest(std::function<bool()> request) { stop_request_ = std::move(request); }
    // The same of more ranks, on rank 0.
    void SetGrowRequest(std::function<bool()> request) { grow_request_ = std::move(request); }
    // On rank 0: the model as it is now, in float32; reads take all ranks (ServeExport).
    std::unique_ptr<model_files::ModelSource> Export() const;
    // On the others: until rank 0's source is destroyed.
    Status ServeExport() const;
    backend::Executable& executable() const { return *training_; }
    // kPeerLost, once the device does not answer any more.
    Status device_status() const { return device_->status(); }
    backend::MemoryUse memory() const { return training_->memory(); }
    // Bytes that this rank has sent to others since it joined them.
    uint64_t sent_bytes() const { return groups_.sent_bytes(); }
    // FLOP/s of this rank's products at most.
    double MeasurePeak() const { return device_->MeasurePeak(options_.dtype); }
    // For so long passes stood still for other ranks.
    double waited_s() const { return training_->transfers().idle_s(); }
    // With TrainerOptions::time_ops, by op: seconds of each time that it ran.
    std::span<const std::vector<float>> op_seconds() const { return op_seconds_; }

  private:
    Trainer(const TrainerOptions& options, cluster::Cluster& cluster)
        : options_(options), cluster_(cluster) {}
    Status Plan();
    Status PlanOn(std::shared_ptr<backend::Device> device, bool may_fail);
    Status AgreeOnSums();
    Status PlanProgram();
    Status PlanUpdate(program::ChunkedProgram& list);
    bool Overlaps() const;
    Status CheckMemory(bool planned);
    bool FitsWith(const TrainerOptions& options) const;
    Status RunPasses(const Batch& batch, bool evaluates);
    // kBoth: kForward, then kBackward.
    enum class PassKind { kBoth, kForward, kBackward, kEvaluate };
    Status RunPass(const Batch& batch, const StagePass& which, PassKind pass);
    Status RunOps(const program::OpRange& ops, backend::Step& step);
    Result<double> SumOfLosses(program::ValueId losses, int64_t count);
    Status NoteNonFinite(int32_t op, int64_t rows);
    Result<StepReport> SumReport(const Batch& batch);
    Result<double> GradientNorm();
    Result<StepReport> Overflowed(const Batch& batch, StepReport report);
    Error Diverged(const Batch& batch, const StepReport& report);
    Result<std::string> FindNonFinite(const Batch& batch);
    double scale() const { return scaler_ ? scaler_->scale() : 1.0; }
    int64_t number() const { return updates_ + skipped_ + 1; }  // of the step under way

    TrainerOptions options_;
    cluster::Cluster& cluster_;
    std::unique_ptr<model_files::ModelSource> source_;
    model::Hyper hyper_;
    TrainLayout layout_;
    std::vector<program::FlatBucket> units_;
    TrainGroups groups_;  // outlives what may still talk in it after an error: training_
    std::shared_ptr<backend::Device> device_;
    bool float64_sums_ = true;  // of updates, on all ranks
    std::unique_ptr<backend::Executable> training_;
    std::unique_ptr<TrainState> state_;
    std::unique_ptr<UpdateRule> rule_;
    std::vector<program::ModelChunk> chunks_;
    program::Update update_;
    std::vector<std::vector<float>> op_seconds_;
    int64_t updates_ = 0;  // made so far
    std::optional<LossScaler> scaler_;
    int64_t skipped_ = 0;
    MicroBatch micro_;
    std::function<Status()> before_update_;
    std::function<bool()> stop_request_, grow_request_;
    // Of the update under way.
    double loss_sum_ = 0, aux_loss_ = 0;
    int64_t positions_ = 0;
    std::string found_;  // the first number that is not finite
};

}  // namespace weft::train
