// Muon: a series of products on each matrix (src/shaders/muon.comp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/gemm.h"
#include "backend/gpu/lower/lower.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

struct MuonArgs {
    uint64_t gradient = 0, momentum = 0, weights = 0, copy = 0, x = 0, squares = 0;
    uint64_t gradient_scale = 0, rate = 0;
    uint32_t rows = 0, cols = 0;
    float kept = 0, nesterov = 0, size = 0, decay = 0;
};
struct MuonScaleArgs {
    uint64_t x = 0, squares = 0;
    uint32_t count = 0, groups = 0;
};
struct MuonMixArgs {
    uint64_t gram = 0, mixed = 0, x = 0, next = 0;
    uint32_t square = 0, count = 0;
};

// Workgroups that add squares: muon_scale adds their sums in each workgroup.
constexpr int64_t kMostStepGroups = 256;

// The matrix [short side, long side], twice, and two squares.
struct MuonScratch {
    GemmMatrix x, next, gram, mixed;
    Region squares;
};
Result<GemmMatrix> PlaceMatrix(Emitter& e, std::string_view name, int64_t rows, int64_t cols) {
    const auto bytes = static_cast<uint64_t>(rows * cols) * sizeof(float);
    WEFT_ASSIGN(const Region region, e.Scratch(name, bytes));
    return GemmMatrix{DType::kF32, region.address, rows, cols, cols};
}
Result<MuonScratch> PlaceSpace(Emitter& e, const program::UpdateMatrix& matrix) {
    const auto [rows, cols] = std::minmax(matrix.rows, matrix.cols);
    MuonScratch room;
    WEFT_ASSIGN(room.x, PlaceMatrix(e, "muon x", rows, cols));
    WEFT_ASSIGN(room.next, PlaceMatrix(e, "muon next", rows, cols));
    WEFT_ASSIGN(room.gram, PlaceMatrix(e, "muon gram", rows, rows));
    WEFT_ASSIGN(room.mixed, PlaceMatrix(e, "muon mixed", rows, rows));
    WEFT_ASSIGN(room.squares, e.Scratch("muon squares", 2 * kMostStepGroups * sizeof(float)));
    return room;
}

Status EmitProduct(Emitter& e, GemmForm form, const GemmMatrix& a, const GemmMatrix& b,
                   const GemmMatrix& c, bool accumulate = false) {
    Gemm gemm{form, a, b, c, accumulate};
    gemm.exact = true;
    return EmitGemm(e, gemm);
}

// Five steps of the Newton-Schulz iteration on room.x.
Status EmitSteps(Emitter& e, MuonScratch& room) {
    for (int step = 0; step < 5; ++step) {
        WEFT_TRY(EmitProduct(e, GemmForm::kNT, room.x, room.x, room.gram));
        WEFT_TRY(EmitProduct(e, GemmForm::kNN, room.gram, room.gram, room.mixed));
        Operands io(e, Operands::Count::kMany);
        MuonMixArgs args;
        args.gram = io.Reads(room.gram.All());
        io.Reads(room.mixed.All());
        args.mixed = io.Writes(room.mixed.All());
        args.x = io.Reads(room.x.All());
        args.next = io.Writes(room.next.All());
        args.square = static_cast<uint32_t>(room.gram.rows * room.gram.cols);
        args.count = static_cast<uint32_t>(room.x.rows * room.x.cols);
        WEFT_TRY(io.Run("muon_mix", {kWalkGroup, 0}, args, {WalkGroups(args.count), 1, 1}));
        WEFT_TRY(EmitProduct(e, GemmForm::kNN, room.mixed, room.x, room.next, true));
        std::swap(room.x, room.next);
    }
    return {};
}

// The part of a vector from element `begin` on.
uint64_t Behind(const Emitter& e, uint64_t address, ValueId id, int64_t begin) {
    return address + static_cast<uint64_t>(RowBytes(e.program().value(id).dtype, begin));
}

// The arguments of muon_step and muon_apply.
MuonArgs ArgsOf(Emitter& e, const Op& op, const program::MuonUpdate& a,
                const program::UpdateMatrix& matrix, Operands& io) {
    const bool copies = op.inputs.size() > 3;
    MuonArgs args;
    args.gradient = Behind(e, io.Reads(op.inputs[0], 0), op.inputs[0], matrix.begin);
    args.weights = Behind(e, io.Adds(op.inputs[1]), op.inputs[1], matrix.begin);
    args.momentum = Behind(e, io.Adds(op.inputs[2]), op.inputs[2], matrix.kept);
    if (copies) args.copy = Behind(e, io.Adds(op.inputs[3], 1), op.inputs[3], matrix.begin);
    args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
    args.rate = e.UpdateScalar(UpdateScalarKind::kRate);
    args.rows = static_cast<uint32_t>(matrix.rows);
    args.cols = static_cast<uint32_t>(matrix.cols);
    args.kept = static_cast<float>(a.momentum);
    args.nesterov = a.nesterov ? 1.0f : 0.0f;
    args.decay = static_cast<float>(a.decay);
    const auto rows = static_cast<double>(matrix.rows), cols = static_cast<double>(matrix.cols);
    args.size = static_cast<float>(a.adam_size ? 0.2 * std::sqrt(std::max(rows, cols))
                                               : std::sqrt(std::max(1.0, rows / cols)));
    return args;
}

Status UpdateOne(Emitter& e, const Op& op, const program::MuonUpdate& a,
                 const program::UpdateMatrix& matrix) {
    const int64_t count = matrix.rows * matrix.cols;
    if (count == 0) return {};
    if (count > std::numeric_limits<uint32_t>::max() / 2) {
        return MakeError(ErrorCode::kUnsupported,
                         "a matrix of {} x {} elements; Muon on GPUs supports at most 2^31",
                         matrix.rows, matrix.cols);
    }
    WEFT_ASSIGN(MuonScratch room, PlaceSpace(e, matrix));
    const int64_t groups = std::min(CeilDiv(count, kWalkGroup), kMostStepGroups);
    Operands step_io(e, Operands::Count::kMany), scale_io(e), apply_io(e, Operands::Count::kMany);
    MuonArgs step = ArgsOf(e, op, a, matrix, step_io);
    step.x = step_io.Writes(room.x.All());
    step.squares = step_io.Writes(room.squares);
    WEFT_TRY(step_io.Run("muon_step", {kWalkGroup, step_io.types()}, step, {groups, 1, 1}));
    MuonScaleArgs scale;
    scale_io.Reads(room.x.All());
    scale.x = scale_io.Writes(room.x.All());
    scale.squares = scale_io.Reads(room.squares);
    scale.count = static_cast<uint32_t>(count);
    scale.groups = static_cast<uint32_t>(groups);
    WEFT_TRY(scale_io.Run("muon_scale", {kWalkGroup, 0}, scale, {WalkGroups(count), 1, 1}));
    WEFT_TRY(EmitSteps(e, room));
    MuonArgs apply = ArgsOf(e, op, a, matrix, apply_io);
    apply.x = apply_io.Reads(room.x.All());
    return apply_io.Run("muon_apply", {kWalkGroup, apply_io.types()}, apply,
                        {WalkGroups(count), 1, 1});
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::MuonUpdate& a) {
    for (const program::UpdateMatrix& matrix : a.matrices) WEFT_TRY(UpdateOne(e, op, a, matrix));
    return {};
}

}  // namespace weft::backend::on_gpu
