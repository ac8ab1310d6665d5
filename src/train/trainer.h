// Trainer: one rank's part of a model in training. Each call of Step runs one update.
//
// The loss is the mean over the targets of the whole batch, for any number of ranks, stages and
// micro-batches. train/parallel/layout.h states which part each rank holds; program/zero.h states
// how data-parallel ranks shard this part. Thread: one caller.
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
#include "engine/start/model_identity.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "train/data/loader.h"
#include "train/graph.h"
#include "train/grpo/generator.h"
#include "train/grpo/loss.h"
#include "train/grpo/reward_models.h"
#include "train/lora/lora.h"
#include "train/loss_scale.h"
#include "train/micro_batch.h"
#include "train/parallel/groups.h"
#include "train/parallel/layout.h"
#include "train/preference_loss.h"
#include "train/state.h"
#include "train/update/add.h"
#include "train/update/rule.h"
#include "train/vector_loss.h"

namespace weft::train {

struct TrainerOptions {
    std::string model;
    bool from_scratch = false;  // the model is a folder without weights: start from random weights
    uint64_t seed = 0;          // seed of random weights
    int threads = 0;            // 0: all cores of the rank
    bool reference = false;     // reference kernels
    std::string device = backend::kDefaultDevice;
    DType dtype = DType::kF32;  // type of the computation (GraphOptions::dtype): kF32, kBF16, kF16
    // Type in which matrix gradients are accumulated: "f32", the name of `dtype`, or "auto"
    // (GradientTypeOf).
    std::string grad_dtype = "auto";
    LossScaleOptions loss_scale;      // for kF16
    int64_t sequence = 1024;          // most positions of a sequence
    int64_t micro_batch = 1;          // sequences per forward and backward pass
    int64_t accumulation = 1;         // micro-batches per update, on each replica
    int tp = 0, pp = 0, dp = 0;       // 0: tp = 1, pp = 1, dp = all remaining ranks
    int virtual_stages = 1;           // model chunks per pipeline stage (pipeline.h)
    std::vector<double> split;        // shares of tensor ranks and stages, as in model::MakeLayout
    int zero = 0;                     // ZeRO stage, 0 to 3
    int64_t unit_elements = 1 << 24;  // elements of a ZeRO unit (program/zero.h)
    int64_t whole_elements = 0;
    // Overlaps the collectives of ZeRO 2 and 3 with arithmetic: "on", "off", or "auto" (on if
    // replicas are on several hosts).
    std::string overlap = "auto";
    // none, selective, full, or auto: the first of these three that fits into memory on all ranks.
    std::string recompute = "auto";
    LoraOptions lora;
    bool lora_without_dropout = false;  // accept an adapter that was trained with dropout
    bool without_dropout = false;       // accept a model whose config.json has dropout
    UpdateOptions update;
    std::string optimizer_folder;    // its state is in a file there; empty: in memory
    double z_loss = 0;               // LossTerms::z_loss
    double neftune_alpha = 0;        // noise of the embedding (MicroBatch::Noise); 0: none
    double clip = 1.0;               // limit on the global gradient norm; 0: none
    bool sequence_parallel = false;  // tensor ranks divide the rows of norms and of the residual
                                     // stream
    int ep = 0;                      // expert groups of the tensor ranks, as in model::Layout
    int cp = 0;                      // context parallelism, as in TrainLayoutOptions
    // Coefficient of the auxiliary loss of experts (train/load_balance.h); below 0: the coefficient
    // of config.json. Each micro-batch has its own auxiliary loss, weighted by its share of the
    // targets.
    double router_aux_loss = -1;
    PreferenceOptions preference;
    GrpoOptions grpo;
    VectorOptions vectors;
    bool resumes = false;       // a checkpoint has the state: advice keeps its form
    bool time_ops = false;      // record the duration of each op (op_seconds)
    bool verify_model = false;  // read all bytes of the model, and log that all hosts have the same
};

// The initial model of the training, without adapters, with a score head if the loss needs one.
// Errors: those of model_files::OpenModel, model_files::hf::OpenScratch and WithHead.
Result<std::unique_ptr<model_files::ModelSource>> OpenSource(const TrainerOptions& options);

// Checks the options' ranges. Errors: kUsage; the message names the flags.
Status CheckTrainer(const TrainerOptions& options);
// Refuses the flags that --cp does not support. answers: the flag of a loss of whole answers; "":
// none. Errors: kUsage; the message names the flags.
Status CheckContext(int cp, std::string_view answers, bool sequence_parallel);
// --recompute; auto is none, the first that a trainer tries. Errors: kUsage.
Result<program::Recompute> FindRecompute(const std::string& name);
// Whether the loss is the cross-entropy of tokens (--loss sft).
bool IsSupervised(const TrainerOptions& options);

// Type of gradient sums for grad_dtype "auto": kF32 if more than kNarrowSums gradients are summed
// over micro-batches and replicas; otherwise `dtype`. (A sum in a narrow type loses what is smaller
// than half of its last bit. The more addends a sum has, the smaller each addend is compared with
// the sum.)
inline constexpr int64_t kNarrowSums = 8;
// The spelling in --dtype and --grad-dtype: "f32".
const char* FlagOf(DType dtype);
DType GradientTypeOf(const TrainerOptions& options, int64_t replicas);

// With virtual stages, --grad-accum must be a multiple of the stages. Errors: kUsage.
Status CheckTurns(const TrainerOptions& options);
TrainLayoutOptions LayoutWordsOf(const TrainerOptions& options);
// The shards of rank layout.rank, one per chunk. Errors: those of model::PlanShards; kUnsupported
// (fewer layers than chunks).
Result<std::vector<model::Shard>> ShardsOf(const TrainLayout& layout, const model::Hyper& hyper,
                                           const model_files::ModelSource& source);

// The graph options of a rank. overlap: ZeRO collectives overlap with arithmetic. Leaves `lora`
// null. Errors: kUsage (recompute).
Result<GraphOptions> GraphOptionsOf(const TrainerOptions& options, const TrainLayout& layout,
                                    const model::Hyper& hyper, bool overlap);

// Names of the values, besides the loss, that steps with this loss report; the values of
// completions come first.
std::vector<std::string> ValueNames(const TrainerOptions& options);

struct StepReport {
    double loss = 0;       // mean over the batch's targets; preferences: over its pairs or answers
    double grad_norm = 0;  // before clipping
    int64_t targets = 0, positions = 0;  // targets: of the mean
    std::vector<double> values;          // the values of ValueNames
    std::optional<double> aux_loss;  // auxiliary loss of experts, unweighted; not part of `loss`
    // float16: the loss scale, and whether the step was skipped: gradients overflowed, so weights
    // and optimizer state are unchanged, and grad_norm is not finite.
    std::optional<double> loss_scale;
    bool skipped = false;
    int stop_requests = 0;  // number of ranks that requested a stop (SetStopRequest); the same on
                            // all ranks
    bool grows = false;     // whether workers can join (SetGrowRequest); the same on all ranks
};

// State in a checkpoint, in addition to the arrays and the position in the data.
struct TrainerProgress {
    int64_t updates = 0, skipped = 0;  // steps that were applied; steps that overflowed
    int64_t averaged = 0;              // weights in their average
    // Schedule-free AdamW: the highest rate so far, and the sum of such rates' squares.
    double most_rate = 0, squared_rates = 0;
    std::optional<LossScaleState> loss_scale;
};

class Trainer {
  public:
    // Loads the model. source: the model, with or without adapters; null: Make opens it. groups:
    // the groups of a former Trainer with the same layout (TakeGroups); empty: Make joins them,
    // which a Cluster allows once in an epoch. Errors: those of model_files and model; kUnsupported
    // (an op has no gradient); kUsage; kOutOfMemory.
    static Result<std::unique_ptr<Trainer>> Make(
        const TrainerOptions& options, cluster::Cluster& cluster,
        std::unique_ptr<model_files::ModelSource> source = nullptr,
        std::optional<TrainGroups> groups = {});
    // Replaces the weights by those of `source`, which has the model's tensors; keeps the optimizer
    // state. Errors: errors of reading.
    Status LoadWeights(const model_files::ModelSource& source) {
        return state_->Load(*training_, source, cluster_);
    }
    // The communicators, for another Trainer; this one can only be destroyed then.
    TrainGroups TakeGroups() { return std::move(groups_); }
    ~Trainer();

    // Runs one update with this replica's part of a batch. Errors: errors of links; kCorrupt: the
    // loss or norm is not finite (with a loss scale: even at the lowest scale); the message has the
    // step, the rank and the op.
    Result<StepReport> Step(const Batch& batch, double learning_rate);
    // Adds the weights to their average. Errors: the device's.
    Status Average();
    // From now on, Export gives the average of the weights. Precondition: Average has run, or
    // TrainerProgress::averaged was above 0.
    void ExportAverage();
    // With an optimizer that averages the weights itself (UpdateRule::has_view): from now on,
    // Evaluate and NextToken use the average, or again the weights. Errors: the device's.
    Status ShowAverage(bool averaged);
    // Whether the last Step failed because the loss or norm is not finite. All ranks then have this
    // error, and weights and optimizer state are those before the Step.
    bool diverged() const { return diverged_; }
    // The loss of a batch, without training. Errors: as for Step.
    Result<StepReport> Evaluate(const Batch& batch);
    // For each position of the batch, over all ranks: the number of the record, or -1 (padding),
    // and then the log-probabilities of its kMostAnswers samples. The same on all ranks. Errors: as
    // for Step.
    Result<std::vector<double>> LogProbabilities(const Batch& batch);
    // Whether the batch has the completions of the last Step. Their log-probabilities before the
    // first of these Steps then count as those of the model that generated them.
    void SetAgain(bool again) { again_ = again; }
    // With grpo: generates completions. Errors: those of Generator.
    Result<std::vector<Completion>> Generate(const Generator::Request& request) {
        return generator_->Run(request);
    }
    // With grpo: RewardModels::Score of --reward-model.
    Result<std::vector<std::vector<double>>> ScoreByModels(std::span<const Judged> completions);
    // Gives all ranks the bytes of rank 0.
    Status ShareFromFirst(std::span<std::byte> bytes);
    // The token after `tokens` (at least one, at most options().sequence). One rank calls `choose`,
    // which chooses the token from the logits, [vocab]. Collective; all ranks get the same token;
    // none: a rank requested a stop (SetStopRequest). Errors: errors of links and of `choose`.
    using ChooseToken = std::function<Result<int32_t>(std::span<const float> logits)>;
    Result<std::optional<int32_t>> NextToken(std::span<const int32_t> tokens,
                                             const ChooseToken& choose);

    const model_files::ModelSource& source() const { return *source_; }
    // The identity of the model before training.
    const engine::ModelIdentity& identity() const { return identity_; }
    const model::Hyper& hyper() const { return hyper_; }
    const TrainerOptions& options() const { return options_; }
    const TrainLayout& layout() const { return layout_; }
    const backend::DeviceInfo& device() const { return device_->info(); }
    const TrainState& state() const { return *state_; }
    // The plan of the adapters in training; empty: there are none.
    const LoraPlan& lora() const { return lora_; }
    // With rule(), a caller that resumes restores the optimizer state; the weights are already
    // loaded.
    const UpdateRule& rule() const { return *rule_; }
    // Errors: kCorrupt.
    Status SetProgress(const TrainerProgress& progress);
    TrainerProgress progress() const;
    int64_t updates() const { return updates_; }
    // Sets a function that each Step calls after all forward and backward passes, and ShowAverage,
    // before weights change. May be empty.
    void SetBeforeUpdate(std::function<Status()> hook) { before_update_ = std::move(hook); }
    // Sets a function that each Step, Evaluate and NextToken calls: whether this rank requests a
    // stop. StepReport::stop_requests is the sum over all ranks. May be empty.
    void SetStopRequest(std::function<bool()> request) { stop_request_ = std::move(request); }
    // Sets a function that rank 0 calls: whether workers can join.
    void SetGrowRequest(std::function<bool()> request) { grow_request_ = std::move(request); }
    // Call on rank 0: the current model in float32. While it is read, all other ranks must run
    // ServeExport.
    std::unique_ptr<model_files::ModelSource> Export() const;
    // Call on the other ranks: serves reads until rank 0 destroys its source.
    Status ServeExport() const;
    backend::Executable& executable() const { return *training_; }
    // kPeerLost if the device no longer answers.
    Status device_status() const { return device_->status(); }
    backend::MemoryUse memory() const { return training_->memory(); }
    // Bytes that this rank has sent to other ranks since it joined the groups.
    uint64_t sent_bytes() const { return groups_.sent_bytes(); }
    // Peak FLOP/s of this rank's matrix products.
    double MeasurePeak() const { return device_->MeasurePeak(options_.dtype); }
    // Seconds in which forward and backward passes waited for other ranks.
    double waited_s() const { return training_->transfers().idle_s(); }
    // With TrainerOptions::time_ops: for each op, the seconds of each run.
    std::span<const std::vector<float>> op_seconds() const { return op_seconds_; }

  private:
    Trainer(const TrainerOptions& options, cluster::Cluster& cluster)
        : options_(options), cluster_(cluster) {}
    Status Plan();
    Status AgreeOnBytes();
    Status PlanOn(std::shared_ptr<backend::Device> device, bool may_fail);
    Status AgreeOnSums();
    Status PlanProgram();
    Status CheckMuon() const;
    Status PlanUpdate(program::ChunkedProgram& list);
    bool Overlaps() const;
    Status CheckMemory(bool planned);
    Result<uint64_t> HostBytesOfLoss() const;
    bool FitsWith(const TrainerOptions& options) const;
    Status RunPasses(const Batch& batch, bool evaluates);
    // kBoth: kForward, then kBackward.
    enum class PassKind { kBoth, kForward, kBackward, kEvaluate };
    Status RunPass(const Batch& batch, const StagePass& which, PassKind pass);
    Status RunWeightedPass(const Batch& batch, const StagePass& which, PassKind pass);
    void ScoreCompletions(const Batch& batch, size_t begin, std::span<const float> losses,
                          std::span<float> weights);
    Status ScoreAnswers(const Batch& batch, const StagePass& which, size_t begin,
                        std::vector<float>& weights);
    void ScoreVectors(const Batch& batch, size_t begin, std::span<const float> rows,
                      std::span<float> weights);
    void SpreadSlopes(size_t begin, std::vector<float>& weights);
    Status ReadVectors(const Batch& batch);
    int64_t NumberOfPasses(const Batch& batch) const;
    Status ReadLogps(const Batch& batch, AnswerPart part);
    Status EstimateKl(const Batch& batch);
    GrpoBatch BatchOf(const Batch& batch) const;
    Status LoadReference();
    Status ReadReference(const Batch& batch);
    const program::ModelChunk& ChunkOf(const StagePass& which) const {
        return (reads_reference_ ? reference_ : chunks_)[static_cast<size_t>(which.chunk)];
    }
    std::span<const Sequence> SequencesOf(const Batch& batch, const StagePass& which) const;
    bool owns_loss() const { return layout_.tensor_rank == 0 && layout_.stage + 1 == layout_.pp(); }
    Status RunOps(const program::OpRange& ops, backend::Step& step);
    Result<double> SumOf(program::ValueId rows, int64_t count);
    Status NoteNonFinite(int32_t op, int64_t rows);
    Result<StepReport> SumReport(const Batch& batch);
    Result<double> GradientNorm();
    Result<StepReport> Overflowed(const Batch& batch, StepReport report);
    Error Diverged(const Batch& batch, const StepReport& report);
    Result<std::string> FindNonFinite(const Batch& batch);
    double scale() const { return scaler_ ? scaler_->scale() : 1.0; }
    int64_t number() const { return updates_ + skipped_ + 1; }  // number of the current step

    TrainerOptions options_;
    cluster::Cluster& cluster_;
    std::unique_ptr<model_files::ModelSource> source_;
    engine::ModelIdentity identity_;
    model::Hyper hyper_;
    TrainLayout layout_;
    LoraPlan lora_;
    std::vector<program::FlatBucket> units_;
    TrainGroups groups_;  // declared before training_, which may still use it after an error
    std::shared_ptr<backend::Device> device_;
    bool float64_sums_ = true;  // all ranks' devices have float64 sums
    bool cores_free_ = false;   // a rank's device does not use the host's cores
    std::unique_ptr<backend::Executable> training_;
    std::unique_ptr<TrainState> state_;
    std::unique_ptr<UpdateRule> rule_;
    std::vector<program::ModelChunk> chunks_, generating_, reference_;
    std::optional<Generator> generator_;
    RewardModels reward_models_;
    program::Update update_;
    OpsAfterUpdate after_update_;
    int64_t averaged_ = 0;                      // weights in their average
    double most_rate_ = 0, squared_rates_ = 0;  // as TrainerProgress
    bool shows_average_ = false;
    std::vector<std::vector<float>> op_seconds_;
    int64_t updates_ = 0;  // number of applied updates
    std::optional<LossScaler> scaler_;
    int64_t skipped_ = 0;
    bool diverged_ = false;
    MicroBatch micro_;
    std::function<Status()> before_update_;
    std::function<bool()> stop_request_, grow_request_;
    // State of the current update.
    double loss_sum_ = 0, aux_loss_ = 0, hits_ = 0;
    int64_t positions_ = 0;
    std::vector<int64_t> targets_of_;  // by micro-batch
    // Preferences: which answers the passes run, KTO's estimate, and this rank's part of the report
    // and of LogProbabilities. row_weights_: by micro-batch, from its forward to its backward pass;
    // with joins(), of the current micro-batch only.
    AnswerPart part_ = AnswerPart::kOwn;
    bool reads_logps_ = false;  // the passes only set logps_
    double kl_ = 0;
    PreferenceSums preference_;
    std::vector<double> logps_;
    // Completions: this rank's part of the report; log-probabilities by sequence of this rank.
    GrpoSums completions_;
    std::vector<std::vector<float>> old_logps_, reference_logps_;
    bool again_ = false;
    bool reads_reference_ = false;  // the passes only set reference_logps_
    std::vector<std::vector<float>> row_weights_;
    // Losses over vectors: this rank's part of the report; with joins(), the vectors of the batch,
    // [places, texts, columns], and the derivatives by this rank's vectors.
    VectorSums vector_sums_;
    std::vector<float> vectors_, vector_slopes_;
    int64_t vector_columns_ = 1;
    bool reads_vectors_ = false;  // the passes only set vectors_
    std::string found_;           // name of the first value that is not finite
};

}  // namespace weft::train
