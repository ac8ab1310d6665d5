// The ops and memory of a rank of a training job, one kind of layer at a time. Uses the Programs of
// train/graph.h for the first ops, one layer of each kind, and the last ops with the loss.
//
// A Program depends on tensor ranks, expert groups, recomputation and types. Stages, replicas, ZeRO
// and the batch do not change it; plan/train_predict.h adds their costs.
//
// A product of m x n outputs, each a sum over k, takes
//     2 m n k / products * (1 + kEdge / k) * (1 + in_flight / (2 m n)),   or its bytes if those
// take longer. A tile of outputs is started and written once for all of its k, and the last wave of
// tiles is half full on average. Attention has a rate of its own, lower for short sequences. The
// time of other ops is their bytes over the memory's bandwidth. If the machine has measured tables
// of training in that dtype (plan/measured.h), they replace these rates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
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
    std::string grad_dtype = "auto";  // as TrainerOptions have it
    train::UpdateOptions update;
    train::LoraOptions lora;
};

// Seconds of an update, by cause.
struct TrainSeconds {
    double products = 0, attention = 0;
    double memory = 0;      // norms, gates, sums: reading and writing
    double launch = 0;      // starting ops, if the device waits for it
    double tensor = 0;      // collectives of tensor ranks
    double shares = 0;      // gradients and weights over replicas, the part not hidden by compute
    double hops = 0;        // messages between stages that a stage waits for
    double bubble = 0;      // the pipeline fills, drains, or has slower stages
    double update = 0;      // the optimizer
    double stragglers = 0;  // the slowest of many ranks
    double total() const;
    TrainSeconds& operator+=(const TrainSeconds& other);
    TrainSeconds operator*(double factor) const;
};
struct TrainSecondsRow {
    const char* name;
    double TrainSeconds::*seconds;
};
std::span<const TrainSecondsRow> TrainSecondsRows();  // in the order of the struct

// Counts of trained elements.
struct TrainedElements {
    double matrices = 0, vectors = 0;
    double unit = 0;          // of the largest unit that ZeRO makes whole at a time
    double frozen_bytes = 0;  // LoRA: the model's own weights
    // The part of the above in the token embedding, which may also be the output matrix.
    double embedding = 0, frozen_embedding_bytes = 0;
    void Add(const TrainedElements& other);
};

struct TrainPart {
    train::TrainingGraph graph;
    TrainedElements elements;
    // By sequences of a micro-batch, and whether transfers overlap with the ops. Thread: one
    // caller.
    struct Costs {
        std::vector<program::OpCost> ops;
        double kept = 0, brief = 0;  // as PartUse has them
    };
    mutable std::map<std::pair<int64_t, bool>, Costs> costs;
};

// The parts of one tensor rank, by key: each kind of layer (ModelWalk::kind_of_layer), the ops
// before the layers and the ops after them. With LoRA, which trains nothing outside the layers,
// kFirst includes the first layer and kLast the last one; kLast of a model of one layer is all.
using RankParts = std::map<int, TrainPart>;
inline constexpr int kFirst = -1, kLast = 1 << 30;

struct PartsKey {
    int tp = 1, ep = 0;
    bool row_shares = false;
    program::Recompute recompute = program::Recompute::kNone;
    DType gradients = DType::kF32;
    auto operator<=>(const PartsKey&) const = default;
};

class TrainWalk {
  public:
    // Borrows both arguments. Errors: those of PlanLora; kUnsupported (latent attention).
    static Result<TrainWalk> Make(const ModelWalk& walk, const TrainJob& job);

    const ModelWalk& model() const { return *walk_; }
    const TrainJob& job() const { return *job_; }

    // One entry per distinct tensor rank. Errors: those of PlanShards and BuildTrainingGraph.
    Result<const std::vector<RankParts>*> PartsOf(const PartsKey& key);
    // The keys of the parts of each of `chunks` model chunks, in order. Errors: kUnsupported.
    Result<std::vector<std::vector<int>>> ChunksOf(int chunks);

  private:
    Result<RankParts> BuildRank(const model::Shard& shard, const train::GraphOptions& graph) const;

    const ModelWalk* walk_ = nullptr;
    const TrainJob* job_ = nullptr;
    std::optional<train::LoraPlan> lora_;
    std::map<PartsKey, std::unique_ptr<std::vector<RankParts>>> parts_;
    std::map<int, std::vector<std::vector<int>>> chunks_;  // by number of chunks
};

// Where ops run.
struct TrainPlace {
    DeviceRates device;
    coll::TierGroup tensor;  // ranks that share a product
    int64_t sequence = 1, micro_batch = 1;
    const Measured* measured = nullptr;    // of as many ranks as a group has; may be null
    const TrainingRates* rates = nullptr;  // measured tables; may be null

    // Seconds of collectives: measured, or predicted from Weft's algorithms and the links.
    // bytes: size of the whole value; value_bytes: size of one element on the wire.
    double AllReduce(const coll::TierGroup& group, double bytes) const;
    double Gather(const coll::TierGroup& group, double bytes) const;
    double ReduceScatter(const coll::TierGroup& group, double bytes, double value_bytes) const;
};

// Seconds and bytes of one part with one micro-batch, without messages between stages.
struct PartUse {
    TrainSeconds forward, backward;
    double forward_flops = 0;
    double kept = 0, brief = 0;  // bytes: kept from forward to backward; temporary
    double seconds() const { return forward.total() + backward.total(); }
    void Add(const PartUse& other);
};
// overlap: transfers of weights and gradients overlap with the ops.
PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap);

// Costs of a list for micro_batch sequences. Each sequence attends only to itself.
std::vector<program::OpCost> TrainCosts(const program::Program& list, int64_t sequence,
                                        int64_t micro_batch);

// Bytes that the optimizer touches per element of a matrix: its state, the weight, the gradient.
constexpr double TouchedBytes(double weight, double gradient, double kept) {
    return 2 * kept + weight + 2 * gradient;
}

// The machine's measured tables for training in `dtype`; null: none.
const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype);

}  // namespace weft::plan
