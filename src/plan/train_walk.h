// The ops and memory of a rank of a training job, one kind of layer at a time. Uses the Programs of
// train/graph.h for the first ops, one layer of each kind, and the last ops with the loss.
//
// A Program depends on tensor ranks, expert groups, recomputation and types. Stages, replicas, ZeRO
// and the batch do not change it; plan/train_predict.h adds their costs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_time.h"
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

// Counts of trained elements.
struct TrainedElements {
    double matrices = 0, vectors = 0;
    double largest = 0;       // matrix
    double frozen_bytes = 0;  // LoRA: the model's own weights
    // The part of the above in the token embedding, which may also be the output matrix.
    double embedding = 0, frozen_embedding_bytes = 0;
};

struct TrainPart {
    train::TrainingGraph graph;
    TrainedElements elements;
    size_t backward_begin() const { return graph.program.chunks[0].backward_begin; }
    const program::Program& list() const { return graph.program.program; }
};

// The parts of one tensor rank. ends_have_layers: `first` includes the first layer and `last` the
// last layer, because LoRA trains nothing in the ops outside the layers. all_in_last: the model has
// one layer; `last` holds it and all ops before it, and `first` is not counted.
struct RankParts {
    TrainPart first, last;
    bool ends_have_layers = false, all_in_last = false;
    std::map<int, TrainPart> layers;  // by kind
};

struct PartsKey {
    int tp = 1, ep = 0;
    bool row_shares = false;
    program::Recompute recompute = program::Recompute::kNone;
    DType gradients = DType::kF32;
    auto operator<=>(const PartsKey&) const = default;
};

// Seconds and bytes of one part with one micro-batch.
struct PartUse {
    OpsSeconds forward, backward;
    double kept = 0, brief = 0;  // bytes: kept from forward to backward; temporary
};

class TrainWalk {
  public:
    // Borrows both arguments. Errors: those of PlanLora; kUnsupported (latent attention).
    static Result<TrainWalk> Make(const ModelWalk& walk, const TrainJob& job);

    const ModelWalk& model() const { return *walk_; }
    const TrainJob& job() const { return *job_; }
    int64_t layers() const { return walk_->hyper().layers; }

    // One entry per distinct tensor rank. Errors: those of PlanShards and BuildTrainingGraph.
    Result<const std::vector<RankParts>*> PartsOf(const PartsKey& key);
    // Layers of each of `chunks` model chunks. Errors: kUnsupported.
    Result<std::vector<model::Span>> LayersOf(int chunks);

  private:
    Result<std::vector<RankParts>> Build(const PartsKey& key) const;
    Result<RankParts> BuildRank(const model::Shard& shard, const train::GraphOptions& graph) const;
    Result<TrainPart> BuildPart(const model::Shard& shard, const train::GraphOptions& graph) const;

    const ModelWalk* walk_ = nullptr;
    const TrainJob* job_ = nullptr;
    std::optional<train::LoraPlan> lora_;
    std::map<PartsKey, std::unique_ptr<std::vector<RankParts>>> parts_;
    std::map<int, std::vector<model::Span>> spans_;  // by chunks
};

// overlap: transfers of weights and gradients overlap with the ops.
PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap);

}  // namespace weft::plan
