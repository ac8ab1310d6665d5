// Builds the Program that one rank runs in a step, and computes its time, one kind of layer at a
// time.
//
// Layers of one kind run the same ops: their tensors have the same names, types and shapes, and
// their attention windows are equal. A rank's Program is therefore built as pieces: the first ops,
// one layer of each kind, and the last ops. Each piece has a count. So a prediction for 126 equal
// layers takes as long as for one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/rank/sum_wire.h"
#include "model/model.h"
#include "plan/machine.h"
#include "plan/seconds_by_cause.h"
#include "program/cost.h"

namespace weft::plan {

struct Piece {
    program::Program program;
    int64_t count = 1;
    bool last = false;  // whether the piece is the last ops: final norm and logits
    int kind = -1;      // kind of the layer that the piece is; -1: none
    // Costs of the program, cached by the shape of the step. Thread: one caller.
    mutable std::vector<std::pair<program::StepShape, std::vector<program::OpCost>>> costs{};
    const std::vector<program::OpCost>& CostsOf(const program::StepShape& step) const;
};

struct RankWork {
    std::vector<Piece> pieces;
    uint64_t weight_bytes = 0;  // in the types of the model's file
    // Number of all-reduces in a step, with or without the all-reduces of the last ops.
    int64_t CountSums(bool with_last) const;
};

// Sizes on which the Program of a shard depends, beside its layers, its place among the ranks and
// its ends of the pipeline.
std::vector<int64_t> SizesOf(const model::Hyper& hyper, const model::Shard& shard);

// Returns a shard for one piece, as if the model had three pipeline stages. stage: 0 for the first
// ops, 1 for `layers`, 2 for the last ops.
model::Shard PartOf(const model::Shard& shard, int stage, model::Span layers);

// A model from which the work of a rank in any layout can be built. `source` must outlive this
// object.
class ModelWalk {
  public:
    static Result<ModelWalk> Make(const model_files::ModelSource& source, KvTypes kv_dtype);
    const model::Hyper& hyper() const { return hyper_; }
    const model_files::ModelSource& source() const { return *source_; }
    KvTypes kv_dtype() const { return options_.kv_dtype; }
    // The parts of the model of which no run is measured ("an indexer").
    const std::vector<std::string_view>& unmeasured() const { return unmeasured_; }
    // Kind of each layer, as a number.
    const std::vector<int>& kind_of_layer() const { return kind_of_layer_; }
    std::span<const int> KindsOf(const model::Span& layers) const {
        return std::span(kind_of_layer_)
            .subspan(static_cast<size_t>(layers.begin), static_cast<size_t>(layers.size()));
    }
    // Work of the rank with this shard. Errors: those of BuildProgram.
    Result<RankWork> WorkOf(const model::Shard& shard) const;
    // Work of the draft head (model/draft_head.h) on a rank of the last stage: over the rows of a
    // step, and in a further run.
    struct HeadWork {
        RankWork first, next;
    };
    Result<HeadWork> DraftHeadWork(const model::Shard& shard) const;

  private:
    const model_files::ModelSource* source_ = nullptr;
    model::Hyper hyper_;
    model::BuildOptions options_;
    std::vector<int> kind_of_layer_;
    std::vector<std::string_view> unmeasured_;
};

// Seconds of a step, by cause.
struct Breakdown : SecondsByCause<Breakdown> {
    double weights = 0;    // reading weights, and the activations of the same ops
    double cache = 0;      // reading and writing the KV cache
    double imbalance = 0;  // expert groups: time of the busiest one beyond the mean
    double compute = 0;    // ops limited by arithmetic
    double overhead = 0;   // fixed time per op
    double wire = 0;       // collectives: time on the links
    double sync = 0;       // collectives: all other time
    double hops = 0;       // messages between stages
    double host = 0;       // experts that the host's processor computes
    double hand_over = 0;  // a GPU and its host's processor hand each other values
    double drive = 0;      // reading experts from the drive
    double draft = 0;      // the draft model or head: drafting, or prefill of a prompt
    static std::span<const CauseRow<Breakdown>> Rows();
};

// For a rank that holds `held` experts and a step of `rows` rows: how many of its experts are
// chosen, and the expected rows of each chosen expert.
program::ExpertLoad LoadOfExperts(const model::Moe& moe, int64_t held, int64_t rows);
double RowsOfExpert(const model::Moe& moe, int64_t held, int64_t rows);

// The part of a step that the host's processor computes, beside a GPU.
struct HostPlace {
    Machine processor;
    std::map<int, int64_t> layers;  // by kind: number of layers whose experts it computes
    double on_drive = 0;            // share of these experts that it reads from the drive
    double drive_bytes_per_s = 0;
    int64_t LayersOf(int kind) const {
        const auto found = layers.find(kind);
        return found == layers.end() ? 0 : found->second;
    }
};

// The machine and links on which a step runs.
struct StepPlace {
    const Machine* machine;
    coll::TierGroup tensor;  // links of the tensor ranks
    const model::Hyper* hyper;
    // How much the ranks of a host slow each other down. 0: not at all (the machine's measured
    // rates `alone`). 1: as much as when all of them compute at the same time. Times for values
    // between 0 and 1 are interpolated.
    double busy = 1;
    // Types of all-reduces on the wire. prompts: the type in steps that read a long prompt
    // (`prompt`).
    engine::SumWires wires{};
    bool prompt = false;
    int64_t most_rows = 0;            // most rows of a step (--prefill-chunk); 0: this step's rows
    const HostPlace* host = nullptr;  // null: the host's processor computes nothing
    const Measured* measured() const { return machine->measured ? &*machine->measured : nullptr; }
};

enum class Pieces { kAll, kNotLast, kOnlyLast };

// Time that one rank needs for these pieces in a step, without messages between stages.
Breakdown TimeStep(const RankWork& work, const program::StepShape& step, const StepPlace& place,
                   Pieces pieces = Pieces::kAll);
// The same for a step of a prompt, without the last piece. If the wire is slow, the step runs in
// parts (backend::Overlap::kAuto), and `wire` is only the time that no arithmetic hides.
Breakdown TimePromptStep(const RankWork& work, const program::StepShape& step,
                         const StepPlace& place);

}  // namespace weft::plan
