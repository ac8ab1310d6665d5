// Computes the time of the ops and the memory of one rank of a training job, one kind of layer at a
// time (plan/walk.h). Builds a Program (train/graph.h) for each part: the first ops, one layer of
// each kind, and the last ops with the loss.
//
// A part's Program depends on tensor ranks, expert groups, recomputation and types. It is the same
// for any stages, replicas, ZeRO level and batch; plan/train_predict.h adds the costs of these.
//
// A matrix product of m x n outputs, each a sum of k terms, takes this many seconds:
//     2 m n k / products * (1 + kEdge / k) * (1 + in_flight / (2 m n))
// or the time to read and write its bytes if that is longer. The factor with kEdge is the time to
// start and to write a tile of outputs. The factor with in_flight is there because the last wave of
// tiles is half full on average. Attention has a rate of its own, which is lower for short
// sequences. The time of other ops is their bytes over the memory's bandwidth. If the machine has
// measured tables of training in that dtype (plan/measured.h), they replace these rates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "plan/train_links.h"
#include "plan/walk.h"
#include "train/graph.h"
#include "train/update/options.h"

namespace weft::plan {

// The training job, without its layout.
struct TrainJob {
    int64_t sequence = 1024;
    DType dtype = DType::kBF16;
    std::string grad_dtype = "auto";  // values as in TrainerOptions
    train::UpdateOptions update;
    train::LoraOptions lora;
    int64_t completions = 0;               // that a replica generates at once (--loss grpo)
    int64_t group = 8;                     // completions of a prompt
    int64_t completion = 0;                // most tokens of a completion; 0: half of the sequence
    std::vector<const ModelWalk*> judges;  // reward models (--loss grpo)
    double judge_bytes = 0;                // their weights, on one rank with the whole models
    double drive_bytes_per_s = 0;  // not 0: the optimizer's state is on such a drive of each host
    bool vectors = false;          // the loss is one of vectors, so there are no logits
};

// Seconds of an update, by cause.
struct TrainSeconds : SecondsByCause<TrainSeconds> {
    double products = 0, attention = 0;
    double memory = 0;      // other ops (norms, gates, sums): reading and writing memory
    double launch = 0;      // starting ops, if the device waits for the start
    double tensor = 0;      // collectives of tensor ranks
    double shares = 0;      // gradients and weights over replicas, as far as ops do not hide it
    double hops = 0;        // messages between stages that a stage waits for
    double bubble = 0;      // waiting while the pipeline fills or drains, or for slower stages
    double update = 0;      // the optimizer
    double stragglers = 0;  // waiting for the slowest of many ranks
    double data = 0;        // wait for a batch: each rank tokenizes the job's batch
    static std::span<const CauseRow<TrainSeconds>> Rows();
};

// Numbers of trained elements.
struct TrainedElements {
    double matrices = 0, vectors = 0;
    // Elements of the largest unit of ZeRO (program/zero.h), and of the largest one of a layer.
    double unit = 0, layer_unit = 0;
    double frozen_bytes = 0;  // with LoRA: bytes of the model's own weights
    // How much of `matrices` and of `frozen_bytes` is in the token embedding, which may also be the
    // output matrix.
    double embedding = 0, frozen_embedding_bytes = 0;
    double ends = 0;  // of `matrices`: of the embedding and the output matrix
    void Add(const TrainedElements& other);
};

// One part of a rank's work: the first ops, a layer of one kind, or the last ops.
struct TrainPart {
    train::TrainingGraph graph;
    TrainedElements elements;
    // Cached by UseOf: by sequences of a micro-batch, threads, and `overlap`. Thread: one caller.
    struct Costs {
        std::vector<program::OpCost> ops;
        double kept = 0, brief = 0, scratch = 0;  // as in PartUse
    };
    mutable std::map<std::tuple<int64_t, int, bool>, Costs> costs;
};

// The parts of one tensor rank. The key of a layer is its kind (ModelWalk::kind_of_layer); kFirst
// is the key of the ops before the layers, and kLast of the ops after them. LoRA trains nothing
// outside the layers, so with LoRA kFirst includes the first layer and kLast the last one. If the
// model has only one layer, kLast then is the whole model.
using RankParts = std::map<int, TrainPart>;
inline constexpr int kFirst = -1, kLast = 1 << 30;

// The properties of a job that its parts depend on.
struct PartsKey {
    int tp = 1, ep = 0;
    bool row_shares = false;
    program::Recompute recompute = program::Recompute::kNone;
    DType gradients = DType::kF32;
    int cp = 1;
    auto operator<=>(const PartsKey&) const = default;
};

class TrainWalk {
  public:
    // Both arguments must outlive the result. Errors: those of PlanLora; kUnsupported (latent
    // attention).
    static Result<TrainWalk> Make(const ModelWalk& walk, const TrainJob& job);

    const ModelWalk& model() const { return *walk_; }
    const TrainJob& job() const { return *job_; }
    // Bytes of the KV cache of the job's completions, on one of `tp` tensor ranks that hold all
    // layers. Errors: those of PlanShards and BuildProgram.
    Result<double> GeneratedBytes(int tp, int ep);
    // Bytes of the activations and scratch memory of the reward models on one of `tp` tensor ranks,
    // beside steps of `rows` rows. threads: as TrainPlace::threads. Errors: those of PlanShards and
    // BuildScoringGraph.
    Result<double> JudgeWork(int tp, int64_t rows, int threads);

    // The parts of each tensor rank; tensor ranks with equal parts share one entry. Errors: those
    // of PlanShards and BuildTrainingGraph.
    Result<const std::vector<RankParts>*> PartsOf(const PartsKey& key);
    // Divides the layers into `chunks` model chunks and returns the keys of each chunk's parts, in
    // order. Errors: kUnsupported.
    Result<std::vector<std::vector<int>>> ChunksOf(int chunks);

  private:
    Result<RankParts> BuildRank(const model::Shard& shard, const train::GraphOptions& graph) const;

    const ModelWalk* walk_ = nullptr;
    const TrainJob* job_ = nullptr;
    std::optional<train::LoraPlan> lora_;
    std::map<std::pair<int, int>, double> generated_;             // by tp and ep
    std::map<std::tuple<int, int64_t, int>, double> judge_work_;  // by tp, rows and threads
    std::map<PartsKey, std::unique_ptr<std::vector<RankParts>>> parts_;
    std::map<int, std::vector<std::vector<int>>> chunks_;  // by number of chunks
};

// The device and links on which ops run, and the sizes of a micro-batch.
struct TrainPlace {
    DeviceRates device;
    coll::TierGroup tensor, context;  // links of the tensor ranks, and of a context group
    int cp = 1;
    int64_t sequence = 1, micro_batch = 1;
    int threads = 0;  // of a processor; 0: a GPU
    DType compute = DType::kBF16;
    const Measured* measured = nullptr;    // tables for as many ranks as a group has; may be null
    const TrainingRates* rates = nullptr;  // measured tables of training; may be null
};

// Seconds and bytes of one part for one micro-batch, without messages between stages.
struct PartUse {
    TrainSeconds forward, backward;
    double forward_flops = 0;
    // Bytes kept from forward to backward, temporary bytes, and the kernels' scratch memory (0:
    // unknown, on GPUs).
    double kept = 0, brief = 0, scratch = 0;
    double seconds() const { return forward.total() + backward.total(); }
    void Add(const PartUse& other);
};
// overlap: transfers of weights and gradients overlap with the ops.
PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap);

// Costs of a Program's ops for micro_batch sequences, whose rows cp ranks divide. Attention stays
// within each sequence.
std::vector<program::OpCost> TrainCosts(const program::Program& list, int64_t sequence,
                                        int64_t micro_batch, int cp = 1);

// Bytes that the optimizer reads and writes per element of a matrix. weight, gradient: bytes of an
// element of the weights and gradients. kept: bytes of optimizer state per element, with the
// float32 weight if there is one.
constexpr double TouchedBytes(double weight, double gradient, double kept) {
    return 2 * kept + weight + 2 * gradient;
}

// The machine's measured tables for training in `dtype`; null: none.
const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype);

}  // namespace weft::plan
