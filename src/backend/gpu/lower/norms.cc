// Norms, their gradients, and sums over rows.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

enum class NormMode : uint32_t { kForward, kSumSquares, kGrad, kInverse, kMoments, kMatch };
struct NormArgs {
    uint64_t x = 0, weight = 0, dy = 0, y = 0, squares = 0, inverse = 0;
    uint64_t codes = 0, scales = 0;
    uint32_t units = 0, cols = 0, x_stride = 0;
    uint32_t squares_stride = 0, y_stride = 0, weights = 1;
    float whole = 0, eps = 0;
};

// A norm over groups of columns of x: a unit of the kernel is one group of one row. Operands x,
// weight, dy and y have slots 0 to 3.
struct NormUnits {
    ValueId x;
    float eps;
    int64_t group;
    int64_t Count(const Emitter& e) const { return CountOf(e, x) / group; }
    NormArgs Args(const Emitter& e, Operands& io) const {
        io.SetRows(group);
        NormArgs args;
        args.x = io.Reads(x, 0);
        args.units = static_cast<uint32_t>(Count(e));
        args.cols = args.x_stride = static_cast<uint32_t>(group);
        args.whole = static_cast<float>(group);
        args.eps = eps;
        return args;
    }
    std::string NameOfInverse() const {
        return fmt::format("inverse rms {} {}", std::bit_cast<uint32_t>(eps), group);
    }
};

// How a kernel adds the columns of a unit, and what it does besides.
struct NormForm {
    bool quads = false, encodes = false, centered = false;
};

Status RunNorm(const Emitter& e, const Operands& io, NormMode mode, const NormForm& form,
               const NormArgs& args) {
    return io.Run("norm",
                  {NormGroup(args.cols), mode, io.types(), io.wide() && form.quads, form.quads,
                   form.encodes, form.centered},
                  args, {RowGroups(args.units), 1, 1}, PinnedSubgroup(e.gpu()));
}

Result<Region> PlaceInverse(Emitter& e, const NormUnits& units) {
    return e.Scratch("norm inverse", static_cast<uint64_t>(units.Count(e)) * sizeof(float));
}
// The inverses, float32 [units]. Reuses those that the gradient of the input has computed, or
// computes them.
Result<Region> FindInverse(Emitter& e, const NormUnits& units) {
    const Region x = e.All(units.x);
    if (const auto made = e.FindDerived(units.NameOfInverse(), x)) return *made;
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    Operands io(e);
    NormArgs args = units.Args(e, io);
    args.inverse = io.Writes(inverse);
    WEFT_TRY(RunNorm(e, io, NormMode::kInverse, {.quads = true}, args));
    e.NoteDerived(units.NameOfInverse(), x, inverse);
    return inverse;
}

struct ColumnSumsArgs {
    uint64_t dy = 0, x = 0, inverse = 0, sums = 0;
    uint32_t rows = 0, cols = 0, block_rows = 0, stride = 0;
};
struct ColumnSumsEndArgs {
    uint64_t sums = 0, from = 0, y = 0;
    uint32_t blocks = 0, stride = 0, cols = 0;
};
constexpr int64_t kLeastBlockRows = 64, kMostBlocks = 256;

// Adds the sums to y.
Status AddSums(Emitter& e, const BlockSums& sums, ValueId y) {
    Operands io(e);
    const uint64_t from = io.Reads(y, 0), to = io.Writes(y, 1);
    return AddBlocks(sums, io, from, to, CountOf(e, y));
}

}  // namespace

// Each invocation has about four columns.
uint32_t NormGroup(int64_t cols) {
    const auto wanted = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(cols / 4, 1)));
    return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 32, 256));
}

// With float32, invocations add single columns, as in the kernels of fused ops.
Status Lower(Emitter& e, const Op& op, const program::RmsNorm& a) {
    const ValueId y = op.outputs[0];
    Operands io(e);
    NormForm form{.quads = HasHalves(e, op), .centered = a.centered};
    NormArgs args = NormUnits{op.inputs[0], a.eps, a.group}.Args(e, io);
    if (!a.plain) args.weight = io.Reads(op.inputs[1], 1);
    if (a.apart) args.weights = static_cast<uint32_t>(e.Cols(y) / a.group);
    args.y = io.Writes(y, 3);
    if (a.whole != 0) {
        const ValueId squares = op.inputs.back();
        args.squares = io.Reads(squares) + static_cast<uint64_t>(a.square) * sizeof(float);
        args.squares_stride = static_cast<uint32_t>(e.Cols(squares));
        args.whole = static_cast<float>(a.whole);
    }
    IntegerRows codes;
    form.encodes = a.group == e.Cols(y) && WantsIntegers(e, y);
    if (form.encodes) {
        WEFT_ASSIGN(codes, PlaceIntegers(e, y));
        args.codes = io.Writes(codes.region);
        args.scales = codes.scales;
    }
    WEFT_TRY(RunNorm(e, io, NormMode::kForward, form, args));
    if (form.encodes) NoteIntegers(e, y, codes);
    return {};
}

// Emits a dispatch for each input.
Status Lower(Emitter& e, const Op& op, const program::SumSquares& a) {
    const ValueId y = op.outputs[0];
    for (size_t i = 0; i < a.columns.size(); ++i) {
        const ValueId x = op.inputs[i];
        Operands io(e);
        NormArgs args;
        args.x = io.Reads(x) + static_cast<uint64_t>(a.columns[i].begin) * sizeof(float);
        args.y = io.Writes(y) + i * sizeof(float);
        args.units = static_cast<uint32_t>(e.Rows(y));
        args.cols = static_cast<uint32_t>(a.columns[i].count);
        args.x_stride = static_cast<uint32_t>(e.Cols(x));
        args.y_stride = static_cast<uint32_t>(e.Cols(y));
        WEFT_TRY(RunNorm(e, io, NormMode::kSumSquares, {}, args));
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::RowMoments&) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    Operands io(e);
    NormArgs args = NormUnits{x, 0, e.Cols(x)}.Args(e, io);
    args.y = io.Writes(y);
    args.y_stride = static_cast<uint32_t>(e.Cols(y));
    return RunNorm(e, io, NormMode::kMoments, {}, args);
}

Status Lower(Emitter& e, const Op& op, const program::MatchStreams&) {
    constexpr float kLeast = 1e-5f;  // of a mean square
    const ValueId x = op.inputs[0], like = op.inputs[1];
    Operands io(e);
    NormArgs args = NormUnits{x, kLeast, e.Cols(like)}.Args(e, io);
    args.dy = io.Reads(like, 2);
    args.y = io.Writes(op.outputs[0], 3);
    args.weights = static_cast<uint32_t>(e.Cols(x) / e.Cols(like));
    return RunNorm(e, io, NormMode::kMatch, {}, args);
}

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradInput& a) {
    if (a.centered) return TrainsOnCpuOnly(op, "of LayerNorm");
    if (a.plain) return TrainsOnCpuOnly(op, "without a weight");
    if (a.apart) return TrainsOnCpuOnly(op, "of groups with weights of their own");
    if (a.whole != 0) return TrainsOnCpuOnly(op, "of rows that ranks share");
    const ValueId dx = op.outputs[0];
    const NormUnits units{op.inputs[1], a.eps, a.group};
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    Operands io(e);
    NormArgs args = units.Args(e, io);
    args.weight = io.Reads(op.inputs[2], 1);
    args.dy = io.Reads(op.inputs[0], 2);
    args.y = io.Writes(dx, 3);
    args.inverse = io.Writes(inverse);
    WEFT_TRY(RunNorm(e, io, NormMode::kGrad, {.quads = true}, args));
    const Region x = e.All(units.x);
    if (!e.All(dx).Overlaps(x)) e.NoteDerived(units.NameOfInverse(), x, inverse);
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradWeight& a) {
    if (a.centered) return TrainsOnCpuOnly(op, "of LayerNorm");
    if (a.apart) return TrainsOnCpuOnly(op, "of groups with weights of their own");
    if (a.whole != 0) return TrainsOnCpuOnly(op, "of rows that ranks share");
    const NormUnits units{op.inputs[1], a.eps, a.group};
    if (units.Count(e) == 0) return {};
    WEFT_ASSIGN(const Region inverse, FindInverse(e, units));
    Operands io(e);
    ColumnSums sums{units.Count(e), a.group};
    sums.dy = io.Reads(op.inputs[0], 0);
    sums.x = io.Reads(units.x, 1);
    sums.inverse = io.Reads(inverse);
    WEFT_ASSIGN(const BlockSums blocks, SumBlocks(e, sums, io));
    return AddSums(e, blocks, op.outputs[0]);
}

Status Lower(Emitter& e, const Op& op, const program::BiasGrad&) {
    const ValueId dy = op.inputs[0];
    if (CountOf(e, dy) == 0) return {};
    Operands io(e);
    ColumnSums sums{FlatRowsOf(e, dy), e.Cols(dy)};
    sums.dy = io.Reads(dy, 0);
    WEFT_ASSIGN(const BlockSums blocks, SumBlocks(e, sums, io));
    return AddSums(e, blocks, op.outputs[0]);
}

Result<BlockSums> SumBlocks(Emitter& e, const ColumnSums& of, Operands& io) {
    io.SetRows(of.cols);
    const int64_t quads = CeilDiv(of.cols, 4);
    const auto lanes = static_cast<int64_t>(
        std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(quads)), kWalkGroup));
    ColumnSumsArgs args{of.dy, of.x, of.inverse};
    args.rows = static_cast<uint32_t>(of.rows);
    args.cols = static_cast<uint32_t>(of.cols);
    args.block_rows =
        static_cast<uint32_t>(std::max(kLeastBlockRows, CeilDiv(of.rows, kMostBlocks)));
    args.stride = static_cast<uint32_t>(4 * quads);
    BlockSums sums{{}, CeilDiv(of.rows, args.block_rows), args.stride};
    const auto bytes = static_cast<uint64_t>(sums.blocks * sums.stride) * sizeof(float);
    WEFT_ASSIGN(sums.region, e.Scratch("column sums", bytes));
    args.sums = io.Writes(sums.region);
    WEFT_TRY(io.Run("column_sums", {kWalkGroup, of.inverse != 0, io.types(), io.wide(), lanes},
                    args, {CeilDiv(quads, lanes), sums.blocks, 1}));
    return sums;
}

Status AddBlocks(const BlockSums& sums, Operands& io, uint64_t from, uint64_t to, int64_t cols) {
    ColumnSumsEndArgs args{io.Reads(sums.region), from, to};
    args.blocks = static_cast<uint32_t>(sums.blocks);
    args.stride = static_cast<uint32_t>(sums.stride);
    args.cols = static_cast<uint32_t>(cols);
    return io.Run("column_sums_end", {kWalkGroup, io.types()}, args,
                  {CeilDiv(cols, kWalkGroup), 1, 1});
}

}  // namespace weft::backend::on_gpu
