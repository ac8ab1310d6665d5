#include "train/pieces.h"

#include <algorithm>

#include "model_files/lora/plan.h"

namespace weft::train {
namespace {

// The block of its tensor that a member covers.
TensorRegion PieceBlock(const program::Value& weight) {
    const Holding h = HoldingOf(weight);
    if (weight.shape.rank > 1) return {h.row, h.rows, h.col, h.cols, 0, h.rows * h.cols};
    return {0, 1, h.row, h.rows, 0, h.rows};
}

}  // namespace

bool IsVector(const model_files::TensorInfo& tensor) {
    if (tensor.name.starts_with(model_files::kAdapterPrefix)) return tensor.rows == 1;
    return tensor.rows == 1 || tensor.cols == 1 || tensor.name.find("_norm.") != tensor.name.npos;
}

Array ArrayOf(const model_files::TensorInfo& tensor, const char* kind) {
    if (IsVector(tensor)) return {kind, tensor.name, 1, tensor.rows * tensor.cols, SafeType::kF32};
    return {kind, tensor.name, tensor.rows, tensor.cols, SafeType::kF32};
}

void VisitPieces(const OwnPart& part, const ElementRange& range, const VisitPiece& visit) {
    for (const program::FlatBucket::Member& member : part.unit->members) {
        TensorRegion region = PieceBlock(member.weight);
        const int64_t begin = std::max(range.begin, member.begin);
        const int64_t end = std::min(range.end, member.begin + region.end);
        if (begin >= end) continue;
        region.begin = begin - member.begin;
        region.end = end - member.begin;
        visit({member, region, begin - part.unit->own_begin});
    }
}

void VisitPieces(const OwnPart& part, Extent extent, const VisitPiece& visit) {
    if (extent == Extent::kOwn) {
        const program::FlatBucket& unit = *part.unit;
        VisitPieces(part, ElementRange{unit.own_begin, unit.own_begin + unit.own_count}, visit);
        return;
    }
    for (const ElementRange& sole : part.sole) VisitPieces(part, sole, visit);
}

}  // namespace weft::train
