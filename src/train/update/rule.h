// UpdateRule: one kind of optimizer. It says what is kept of a rank's own parts, as values of the
// Program, and which ops update the weights from them (program/update.h); what computes is the
// device. Thread: the Trainer's; what it keeps may be read from another one between updates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"
#include "train/pieces.h"
#include "train/state.h"
#include "train/update/options.h"

namespace weft::train {

// What the rules of a run share. All outlive them.
struct UpdateContext {
    const TrainState& state;
    const model_files::ModelSource& source;
    bool several_ranks = false;  // sums over all ranks are ops of Group::kWorld
    bool first_rank = true;      // rank 0: of what all keep alike it is the one that saves it
    bool float64_sums = true;    // of all ranks' devices (program::Target)
};

// A part of what a rule keeps, as a checkpoint has it: float32 of a region of an array, which
// begins at element `first` of a value. With scales, the value has codes of a byte (tensor/
// dynamic_codes.h), and `first` is a multiple of their block.
struct KeptPiece {
    Array array;
    TensorRegion region;
    program::ValueId value = program::kNoValue;
    int64_t first = 0;
    program::ValueId scales = program::kNoValue;
    bool is_signed = false;
};
// Elements [begin, begin + size) of the piece's region. Of codes begin is a multiple of kKeptGrain,
// and the size, too, but for the last. Errors: the device's.
inline constexpr int64_t kKeptGrain = 4096;
Status ReadKeptPiece(const backend::HostSnapshot& training, const KeptPiece& piece, int64_t begin,
                     std::span<float> out);
Status WriteKeptPiece(backend::Executable& training, const KeptPiece& piece, int64_t begin,
                      std::span<const float> values);

class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    // Adds what the rule keeps, and the ops that come before those of any part.
    virtual void Prepare(program::Program& program) = 0;
    // Then, for the state's part `index`: the ops that update its weights, and their copy.
    virtual void UpdatePart(program::Program& program, size_t index) = 0;
    // The Program is compiled, all that is kept zero: makes zeros of what is coded otherwise.
    virtual Status Start(backend::Executable& /*training*/) { return {}; }

    // The arrays that a whole checkpoint has of `tensors`, which are all that are trained.
    virtual std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const = 0;
    // What this rank keeps: all of it, or that which no rank of lower number keeps, too.
    using VisitKept = std::function<void(KeptPiece piece)>;
    virtual void VisitKeptPieces(Extent extent, const VisitKept& visit) const = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context);

// What ZeRO's units and shares must begin at multiples of, in elements (program/zero.h).
int64_t UnitGrainOf(UpdateKind kind);

}  // namespace weft::train
