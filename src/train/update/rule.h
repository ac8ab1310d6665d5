// UpdateRule: one kind of optimizer. It adds the optimizer state of a rank's own parts to the
// Program as values, and the ops that update the weights (program/update.h); the device computes.
// Thread: the Trainer's; other threads may read the state between updates.
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

// Shared by the rules of a run. All references outlive the rules.
struct UpdateContext {
    const TrainState& state;
    const model_files::ModelSource& source;
    bool several_ranks = false;  // sums over all ranks are ops of Group::kWorld
    bool first_rank = true;      // rank 0, which saves the state that all ranks hold
    bool float64_sums = true;    // all ranks' devices have float64 sums (program::Target)
};

// A part of the optimizer state in checkpoint form: float32 of a region of an array, starting at
// element `first` of a value. With scales, the value has byte codes (tensor/dynamic_codes.h), and
// `first` is a multiple of their block.
struct KeptPiece {
    Array array;
    TensorRegion region;
    program::ValueId value = program::kNoValue;
    int64_t first = 0;
    program::ValueId scales = program::kNoValue;
    bool is_signed = false;
};
// Reads elements [begin, begin + size) of the piece's region. For codes, begin and size are
// multiples of kKeptGrain, except the last size. Errors: the device's.
inline constexpr int64_t kKeptGrain = 4096;
Status ReadKeptPiece(const backend::HostSnapshot& training, const KeptPiece& piece, int64_t begin,
                     std::span<float> out);
Status WriteKeptPiece(backend::Executable& training, const KeptPiece& piece, int64_t begin,
                      std::span<const float> values);

class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    // Adds the optimizer state, and the ops that come before those of the parts.
    virtual void Prepare(program::Program& program) = 0;
    // After Prepare, for the state's part `index`: adds the ops that update its weights and their
    // copy.
    virtual void UpdatePart(program::Program& program, size_t index) = 0;
    // After compilation, with all state zeroed: initializes state whose encoding of zero is not
    // zero.
    virtual Status Start(backend::Executable& /*training*/) { return {}; }

    // The arrays that a complete checkpoint has for `tensors`, all trained tensors.
    virtual std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const = 0;
    // Visits this rank's optimizer state: all of it, or only the part that no lower rank holds.
    using VisitKept = std::function<void(KeptPiece piece)>;
    virtual void VisitKeptPieces(Extent extent, const VisitKept& visit) const = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context);

// Alignment of ZeRO's units and shares, in elements (program/zero.h).
int64_t UnitGrainOf(UpdateKind kind);

}  // namespace weft::train
