// Maps ranges of a ZeRO unit to regions of the model's tensors, for checkpoints and optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "model_files/model_file.h"
#include "train/checkpoint/region.h"
#include "train/state.h"

namespace weft::train {

// The tensor as a float32 array of `kind`.
Array ArrayOf(const model_files::TensorInfo& tensor, const char* kind);

// A member's elements within a range of its unit.
struct MemberPiece {
    const program::FlatBucket::Member& member;
    TensorRegion region;  // within the tensor; a vector is one row
    int64_t own;          // first element within the rank's own part of the unit

    const std::string& tensor() const { return member.weight.slice.name; }
    bool is_matrix() const { return member.weight.shape.rank > 1; }
};

// Visits every member's piece in `range` (elements of the unit); members outside are skipped.
using VisitPiece = std::function<void(const MemberPiece& piece)>;
void VisitPieces(const OwnPart& part, const ElementRange& range, const VisitPiece& visit);
// kOwn: the whole own part; kSole: only elements that no lower rank holds.
enum class Extent { kOwn, kSole };
void VisitPieces(const OwnPart& part, Extent extent, const VisitPiece& visit);

}  // namespace weft::train
