// What one rank does in a step and what it holds: its Program, walked one kind of layer at a time.
//
// Layers whose tensors have the same names, types and shapes (and windows) do the same. So the
// Program of a rank is built as pieces, the first ops, one layer of each kind, and the last ops,
// each with how often it runs; a prediction costs as much for 126 layers as for one.
#pragma once

#include <cstdint>
#include <memory>
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
};

struct RankWork {
    std::vector<Piece> pieces;
    uint64_t weight_bytes = 0;  // as the file has them
};

// The shard as a part of a pipeline of three stages: the first has no layers, the last neither, and
// the one between those that are given.
model::Shard PartOf(const model::Shard& shard, int stage, model::Span layers);

// One model, ready to be cut in any way. Borrows the source.
class ModelWalk {
  public:
    static Result<ModelWalk> Make(const model_files::ModelSource& source, DType kv_dtype);
    const model::Hyper& hyper() const { return hyper_; }
    const model_files::ModelSource& source() const { return *source_; }
    DType kv_dtype() const { return options_.kv_dtype; }
    // By layer: layers of a kind do the same.
    const std::vector<int>& kind_of_layer() const { return kind_of_layer_; }
    // Of one rank of a plan. Errors: those of BuildProgram.
    Result<RankWork> WorkOf(const model::Shard& shard) const;
    // Of its draft head (model/draft_head.h), behind a step: of a rank of the last stage.
    Result<RankWork> DraftHeadWork(const model::Shard& shard) const;

  private:
    const model_files::ModelSource* source_ = nullptr;
    model::Hyper hyper_;
    model::BuildOptions options_;
    std::vector<int> kind_of_layer_;
};

// Seconds, by what they are spent on; all of a step together.
struct Breakdown {
    double weights = 0;    // reading weights (and activations beside them)
    double cache = 0;      // reading and writing the KV cache
    double imbalance = 0;  // experts: the unluckiest group's beyond the mean
    double compute = 0;    // ops that arithmetic holds up
    double overhead = 0;   // of each op, beside its bytes and arithmetic
    double wire = 0;       // collectives: links
    double sync = 0;       // collectives: beside the links
    double hops = 0;       // messages between stages
    double draft = 0;      // the draft model's or head's guesses; of a prompt, its reading of it
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
    // How far the ranks of the host hold each other up: 0 where one of them computes at a time, 1
    // where all do. It interpolates between the machine's tables of the two.
    double busy = 1;
    const Measured* measured() const { return machine->measured ? &*machine->measured : nullptr; }
};

// One rank's step, without messages between stages. with_last: the last piece counts, too.
Breakdown TimeStep(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   bool with_last = true);

}  // namespace weft::plan
