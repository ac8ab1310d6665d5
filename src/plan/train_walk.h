// What a rank of a training job runs and holds, one kind of layer at a time: the lists that
// train/graph.h builds, for the first ops, a layer of each kind, and the last ops with the loss.
//
// A list depends on the tensor ranks, expert groups, recomputation and types, not on stages,
// replicas, ZeRO or the batch: those are counted on top of it (plan/train_predict.h).
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

// What is trained, and how, whatever the layout.
struct TrainJob {
    int64_t sequence = 1024;
    DType dtype = DType::kBF16;
    std::string grad_dtype = "auto";  // as TrainerOptions have it
    train::UpdateOptions update;
    train::LoraOptions lora;
};

// Elements that are trained.
struct TrainedElements {
    double matrices = 0, vectors = 0;
    double largest = 0;       // matrix
    double frozen_bytes = 0;  // LoRA: the model's own weights
    // Of these the token embedding, which may be the output matrix, too.
    double embedding = 0, frozen_embedding_bytes = 0;
};

struct TrainPart {
    train::TrainingGraph graph;
    TrainedElements elements;
    size_t backward_begin() const { return graph.program.chunks[0].backward_begin; }
    const program::Program& list() const { return graph.program.program; }
};

// Of one tensor rank. ends_have_layers: `first` has the first layer, too, and `last` the last one:
// ops before and behind all layers alone have nothing that LoRA trains. all_in_last: there is one
// layer, and `last` has it with all that stands before; `first` is not counted.
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
    double kept = 0, brief = 0;  // bytes: from forward to backward, and for a while
};

class TrainWalk {
  public:
    // Borrows both. Errors: those of PlanLora, kUnsupported (latent attention).
    static Result<TrainWalk> Make(const ModelWalk& walk, const TrainJob& job);

    const ModelWalk& model() const { return *walk_; }
    const TrainJob& job() const { return *job_; }
    int64_t layers() const { return walk_->hyper().layers; }

    // By tensor rank, those that differ. Errors: those of PlanShards and BuildTrainingGraph.
    Result<const std::vector<RankParts>*> PartsOf(const PartsKey& key);
    // Layers of each of so many chunks. Errors: kUnsupported.
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

// overlap: transfers of weights and gradients run beside the ops.
PartUse UseOf(const TrainPart& part, const TrainPlace& place, bool overlap);

}  // namespace weft::plan
