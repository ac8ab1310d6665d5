// Maps ranges of a unit (program::FlatBucket: consecutive weights that ZeRO shards together) to
// regions of the model's tensors, for checkpoints and optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "model_files/model_file.h"
#include "train/checkpoint/region.h"
#include "train/state.h"

namespace weft::train {

// Whether the Program may hold the tensor as one vector. Files give two dims to some vectors:
// [heads, 1] to Mamba 2's ssm_a and ssm_d, [heads, columns] to a norm by head or by group.
bool IsVector(const model_files::TensorInfo& tensor);
// Whether the tensor has biases: one, or one of each expert.
inline bool IsBias(std::string_view tensor) {
    return tensor.ends_with(".bias");
}
// The float32 array of kind `kind` for the tensor; a vector has one row.
Array ArrayOf(const model_files::TensorInfo& tensor, const char* kind);

// The elements of one member (weight) of a unit that are in a range of the unit.
struct MemberPiece {
    const program::FlatBucket::Member& member;
    TensorRegion region;  // within the tensor; a vector is one row
    int64_t own;          // index of the first element in the rank's own part of the unit

    const std::string& tensor() const { return member.weight.slice.name; }
    // Whether weight decay applies. (Biases of experts are a stack of vectors.)
    bool is_matrix() const { return member.weight.shape.rank > 1 && !IsBias(tensor()); }
};

// Visits the piece in `range` (elements of the unit) of every member that has elements there.
using VisitPiece = std::function<void(const MemberPiece& piece)>;
void VisitPieces(const OwnPart& part, const ElementRange& range, const VisitPiece& visit);
// kOwn: the whole own part; kSole: only elements that no rank with a lower number holds.
enum class Extent { kOwn, kSole };
void VisitPieces(const OwnPart& part, Extent extent, const VisitPiece& visit);

}  // namespace weft::train
