// UpdateRule: one kind of optimizer. It adds the optimizer state of a rank's own parts (OwnPart) to
// the Program as values, and adds the ops that update the weights (program/update.h). The device
// runs these ops. Thread: the Trainer's thread; other threads may read the state between updates.
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

// The inputs of rules. All references must outlive the rules.
struct UpdateContext {
    const TrainState& state;
    const model_files::ModelSource& source;
    bool several_ranks = false;  // there are several ranks, so sums over all ranks are ops of
                                 // Group::kWorld
    bool first_rank = true;      // rank 0, which saves the state that all ranks hold
    bool float64_sums = true;    // all ranks' devices have float64 sums (program::Target)
};

// A part of the optimizer state as a checkpoint stores it: the region of an array, in float32. It
// begins at element `first` of the Program's value. If there are `scales`, the value has byte codes
// (tensor/dynamic_codes.h); the first element may be within a block if a lower rank has the rows
// before it (Extent::kSole).
struct KeptPiece {
    Array array;
    TensorRegion region;
    program::ValueId value = program::kNoValue;
    int64_t first = 0;
    program::ValueId scales = program::kNoValue;
    bool is_signed = false;
};
// Reads elements [begin, begin + out.size()) of the piece's region. Errors: the device's.
Status ReadKeptPiece(const backend::HostSnapshot& training, const KeptPiece& piece, int64_t begin,
                     std::span<float> out);
// Writes such elements. For byte codes, piece.first is a multiple of their block size, and begin
// and size are multiples of kKeptGrain, except the size at the end of the region. Errors: the
// device's.
inline constexpr int64_t kKeptGrain = 4096;
Status WriteKeptPiece(backend::Executable& training, const KeptPiece& piece, int64_t begin,
                      std::span<const float> values);

class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    // Adds the optimizer state, and ops that come before the ops of all parts.
    virtual void Prepare(program::Program& program) = 0;
    // Call after Prepare for each part: adds the ops that update the weights, and their copy, of
    // part `index` of TrainState::parts().
    virtual void UpdatePart(program::Program& program, size_t index) = 0;
    // Call after the updates of all parts: adds the op that adds the weights of a part to their
    // average. Returns the average: float32, with the length of the own part. Returns kNoValue if
    // the weights are not averaged.
    virtual program::ValueId AveragePart(program::Program& /*program*/, size_t /*index*/) {
        return program::kNoValue;
    }
    // Whether passes can read an average of the weights instead of the weights. Then ViewPart adds
    // the op that lets them read the average (`averaged`), or again the weights, of a part.
    virtual bool has_view() const { return false; }
    virtual void ViewPart(program::Program& /*program*/, size_t /*index*/, bool /*averaged*/) {}
    // Call after compilation, when all state is zero bytes, and after the weights are loaded. It
    // initializes the state that does not begin as zero bytes.
    virtual Status Start(backend::Executable& /*training*/) { return {}; }

    // The arrays that a complete checkpoint must have. tensors: all trained tensors.
    virtual std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const = 0;
    // Visits this rank's optimizer state: all of it, or only the part that no rank with a lower
    // number holds.
    using VisitKept = std::function<void(KeptPiece piece)>;
    virtual void VisitKeptPieces(Extent extent, const VisitKept& visit) const = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context);

// Alignment of ZeRO's units and shares, in elements (program/zero.h).
int64_t UnitGrainOf(UpdateKind kind);

}  // namespace weft::train
