// Which part of which tensor of the model a range of a unit is: what checkpoints and optimizers
// share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "model_files/model_file.h"
#include "train/checkpoint/region.h"
#include "train/state.h"

namespace weft::train {

// The tensor as an array of `kind`, in float32.
Array ArrayOf(const model_files::TensorInfo& tensor, const char* kind);

// A member's elements in a range of its unit.
struct MemberPiece {
    const program::FlatBucket::Member& member;
    TensorRegion region;  // of the tensor; a vector is one row
    int64_t own;    // where it begins in the rank's own part of the unit

    const std::string& tensor() const { return member.weight.slice.name; }
    bool is_matrix() const { return member.weight.shape.rank > 1; }
};

// Every member's piece in `range`, in elements of the unit; nothing where they don't meet.
using VisitPiece = std::function<void(const MemberPiece& piece)>;
void VisitPieces(const OwnPart& part, const ElementRange& range, const VisitPiece& visit);
// All of the own part, or what no rank of lower number has, too.
enum class Extent { kOwn, kSole };
void VisitPieces(const OwnPart& part, Extent extent, const VisitPiece& visit);

}  // namespace weft::train
