// The Program that one rank runs in a step and its memory, walked one kind of layer at a time.
//
// Layers whose tensors have the same names, types, shapes and windows run the same ops. A rank's
// Program is therefore built as pieces: the first ops, one layer of each kind, and the last ops,
// each with a count. A prediction costs the same for 126 layers as for one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "plan/machine.h"
#include "program/cost.h"

namespace weft::plan {

struct Piece {
    program::Program program;
    int64_t count = 1;
    bool last = false;  // the final norm and the logits
    // Costs of the program in the steps that were timed so far. Thread: one caller.
    mutable std::vector<std::pair<program::StepShape, std::vector<program::OpCost>>> costs{};
    const std::vector<program::OpCost>& CostsOf(const program::StepShape& step) const;
};

struct RankWork {
    std::vector<Piece> pieces;
    uint64_t weight_bytes = 0;  // with the file's types
};

// The shard as one of three pipeline stages: stage 0 has the first ops, stage 1 the given layers,
// stage 2 the last ops.
model::Shard PartOf(const model::Shard& shard, int stage, model::Span layers);

// One model, ready to be sharded in any layout. Borrows the source.
class ModelWalk {
  public:
    static Result<ModelWalk> Make(const model_files::ModelSource& source, DType kv_dtype);
    const model::Hyper& hyper() const { return hyper_; }
    const model_files::ModelSource& source() const { return *source_; }
    DType kv_dtype() const { return options_.kv_dtype; }
    // Kind of each layer. Layers of a kind run the same ops.
    const std::vector<int>& kind_of_layer() const { return kind_of_layer_; }
    std::span<const int> KindsOf(const model::Span& layers) const {
        return std::span(kind_of_layer_)
            .subspan(static_cast<size_t>(layers.begin), static_cast<size_t>(layers.size()));
    }
    // Work of one rank of a plan. Errors: those of BuildProgram.
    Result<RankWork> WorkOf(const model::Shard& shard) const;
    // Work of the draft head (model/draft_head.h) after a step, on a rank of the last stage.
    Result<RankWork> DraftHeadWork(const model::Shard& shard) const;

  private:
    const model_files::ModelSource* source_ = nullptr;
    model::Hyper hyper_;
    model::BuildOptions options_;
    std::vector<int> kind_of_layer_;
};

// Seconds of a step, by cause.
struct Breakdown {
    double weights = 0;    // reading weights (and the activations of those ops)
    double cache = 0;      // reading and writing the KV cache
    double imbalance = 0;  // experts: time of the busiest group beyond the mean
    double compute = 0;    // ops limited by arithmetic
    double overhead = 0;   // fixed time per op
    double wire = 0;       // collectives: time on the links
    double sync = 0;       // collectives: time apart from the links
    double hops = 0;       // messages between stages
    double draft = 0;      // drafts of the draft model or head; for a prompt, its prefill
    double total() const;
    Breakdown& operator+=(const Breakdown& other);
    Breakdown operator*(double factor) const;
};

struct BreakdownRow {
    const char* name;
    double Breakdown::*seconds;
};
// In the order of the struct.
std::span<const BreakdownRow> BreakdownRows();

// Where a step runs.
struct StepPlace {
    const Machine* machine;
    coll::TierGroup tensor;  // the tensor ranks
    const model::Hyper* hyper;
    // How far the ranks of a host slow each other down: 0: one of them computes at a time; 1: all
    // do. Interpolates between the machine's two tables.
    double busy = 1;
    const Measured* measured() const { return machine->measured ? &*machine->measured : nullptr; }
};

enum class Pieces { kAll, kNotLast, kOnlyLast };

// Time of these pieces in a step of one rank, without messages between stages.
Breakdown TimeStep(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   Pieces pieces = Pieces::kAll);

}  // namespace weft::plan
