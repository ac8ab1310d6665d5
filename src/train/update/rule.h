// UpdateRule: one kind of optimizer, what it keeps beside the weights and how it updates them.
//
// A rank updates its own part of each unit (train/state.h). An element's update may need what other
// ranks have of its tensor; then Prepare, which all ranks call, brings it together.
// Thread: the Trainer's; widen may run on another one between updates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/training.h"
#include "base/result.h"
#include "coll/comm.h"
#include "model_files/model_file.h"
#include "train/pieces.h"
#include "train/state.h"
#include "train/update/options.h"

namespace weft::train {

// What the rules of a run share. All outlive them.
struct UpdateContext {
    backend::TrainingExecutable& training;
    TrainState& state;
    const std::vector<program::Unit>& units;
    const model_files::ModelSource& source;
};

// One update: number from 1 on; gradients count gradient_scale times.
struct UpdateStep {
    int64_t number = 0;
    double rate = 0, gradient_scale = 1;
};

// A part of what a rule keeps, as a checkpoint has it: float32 of a region of an array. The values
// lie in memory, or, where `floats` is empty, are made and taken a part at a time.
struct KeptPiece {
    Array array;
    Region region;
    std::span<float> floats = {};
    // Elements [begin, begin + size) of the region.
    std::function<void(int64_t begin, std::span<float> out)> widen = {};
    // begin is a multiple of kKeptGrain, and the size, too, but for the last.
    std::function<void(int64_t begin, std::span<const float> values)> take = {};
};
inline constexpr int64_t kKeptGrain = 4096;

class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    // Of what this rank keeps; known before Start.
    virtual uint64_t size_bytes() const = 0;
    // The state is loaded: memory for it, all zeros. world: null where there is one rank.
    virtual void Start(coll::Comm* world) = 0;

    // Before the parts of an update. Errors: links'.
    virtual Status Prepare(const UpdateStep& /*step*/) { return {}; }
    // The weights of the state's part `index`, and their copies that passes read.
    virtual void UpdatePart(size_t index, const UpdateStep& step) = 0;

    // The arrays that a whole checkpoint has of `tensors`, which are all that are trained.
    virtual std::vector<Array> Arrays(const std::set<std::string, std::less<>>& tensors) const = 0;
    // What this rank keeps: all of it, or that which no rank of lower number keeps, too.
    using VisitKept = std::function<void(KeptPiece piece)>;
    virtual void VisitKeptPieces(Extent extent, const VisitKept& visit) = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const UpdateOptions& options,
                                           const UpdateContext& context);

// What ZeRO's units and shares must begin at multiples of, in elements (program/zero.h).
int64_t UnitGrainOf(UpdateKind kind);

}  // namespace weft::train
