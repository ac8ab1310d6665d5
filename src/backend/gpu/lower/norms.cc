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
    uint64_t codes = 0, scales = 0, dsquares = 0;
    uint32_t units = 0, cols = 0, x_stride = 0;
    uint32_t squares_stride = 0, y_stride = 0, weights = 1;
    float whole = 0, eps = 0;
    uint32_t square = 0;
};

// A norm over groups of columns of x: a unit of the kernel is one group of one row. Operands x,
// weight, dy and y have slots 0 to 3.
struct NormUnits {
    ValueId x;
    float eps;
    int64_t group;
    bool centered = false;
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
        return fmt::format("inverse rms {} {} {}", std::bit_cast<uint32_t>(eps), group, centered);
    }
};

// How a kernel adds the columns of a unit, and its further outputs.
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
    const int64_t numbers = units.Count(e) * (units.centered ? 2 : 1);
    return e.Scratch("norm inverse", static_cast<uint64_t>(numbers) * sizeof(float));
}
// The inverses, float32 [units], and after them the means if the norm has means. Reuses those that
// the gradient of the input has computed, or computes them.
Result<Region> FindInverse(Emitter& e, const NormUnits& units) {
    const Region x = e.All(units.x);
    if (const auto made = e.FindDerived(units.NameOfInverse(), x)) return *made;
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    Operands io(e);
    NormArgs args = units.Args(e, io);
    args.inverse = io.Writes(inverse);
    WEFT_TRY(RunNorm(e, io, NormMode::kInverse, {.quads = true, .centered = units.centered}, args));
    e.NoteDerived(units.NameOfInverse(), x, inverse);
    return inverse;
}

// The sums of squares of rows of `whole` columns, of which x has a part.
void ReadSquares(const Emitter& e, Operands& io, ValueId squares, int64_t square, int64_t whole,
                 NormArgs& args) {
    args.squares = io.Reads(squares) + static_cast<uint64_t>(square) * sizeof(float);
    args.squares_stride = static_cast<uint32_t>(e.Cols(squares));
    args.square = static_cast<uint32_t>(square);
    args.whole = static_cast<float>(whole);
}

enum class SumFactor : uint32_t { kNone, kScales, kNorms };
struct ColumnSumsArgs {
    uint64_t dy = 0, x = 0, inverse = 0, means = 0, sums = 0;
    uint32_t rows = 0, cols = 0, block_rows = 0, stride = 0, group = 0;
};
struct SumSquaresGradArgs {
    uint64_t dy = 0, x = 0, dx = 0;
    uint32_t elements = 0, cols = 0, dy_stride = 0, begin = 0, count = 0;
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
    if (a.whole != 0) ReadSquares(e, io, op.inputs.back(), a.square, a.whole, args);
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

Status Lower(Emitter& e, const Op& op, const program::SumSquaresGrad& a) {
    const ValueId dy = op.inputs[0], x = op.inputs[1];
    Operands io(e);
    SumSquaresGradArgs args;
    args.dy = io.Reads(dy) + static_cast<uint64_t>(a.column) * sizeof(float);
    args.x = io.Reads(x);
    args.dx = io.Writes(op.outputs[0]);
    args.elements = static_cast<uint32_t>(CountOf(e, x));
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.dy_stride = static_cast<uint32_t>(e.Cols(dy));
    args.begin = static_cast<uint32_t>(a.columns.begin);
    args.count = static_cast<uint32_t>(a.columns.count);
    return io.Run("sum_squares_grad", {kWalkGroup}, args, {QuadGroups(CountOf(e, x)), 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradInput& a) {
    const ValueId dx = op.outputs[0];
    const NormUnits units{op.inputs[1], a.eps, a.group, a.centered};
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    Operands io(e);
    NormArgs args = units.Args(e, io);
    if (!a.plain) args.weight = io.Reads(op.inputs[2], 1);
    if (a.apart) args.weights = static_cast<uint32_t>(e.Cols(dx) / a.group);
    args.dy = io.Reads(op.inputs[0], 2);
    args.y = io.Writes(dx, 3);
    if (a.whole != 0) {
        ReadSquares(e, io, op.inputs.back(), a.square, a.whole, args);
        args.dsquares = io.Writes(op.outputs[1]);
    } else {
        args.inverse = io.Writes(inverse);
    }
    WEFT_TRY(RunNorm(e, io, NormMode::kGrad, {.quads = true, .centered = a.centered}, args));
    const Region x = e.All(units.x);
    if (a.whole == 0 && !e.All(dx).Overlaps(x)) e.NoteDerived(units.NameOfInverse(), x, inverse);
    return {};
}

namespace {

// The inverses of rows of `whole` columns.
Result<Region> InverseOfWhole(Emitter& e, const Op& op, const program::RmsNormGradWeight& a,
                              const NormUnits& units) {
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    Operands io(e);
    NormArgs args = units.Args(e, io);
    ReadSquares(e, io, op.inputs[2], a.square, a.whole, args);
    args.inverse = io.Writes(inverse);
    WEFT_TRY(RunNorm(e, io, NormMode::kInverse, {.quads = true}, args));
    return inverse;
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradWeight& a) {
    const NormUnits units{op.inputs[1], a.eps, a.group, a.centered};
    if (units.Count(e) == 0) return {};
    WEFT_ASSIGN(const Region inverse,
                a.whole != 0 ? InverseOfWhole(e, op, a, units) : FindInverse(e, units));
    Operands io(e);
    ColumnSums sums{units.Count(e), a.group};
    if (a.apart) sums = {FlatRowsOf(e, units.x), e.Cols(units.x)};
    sums.dy = io.Reads(op.inputs[0], 0);
    sums.x = io.Reads(units.x, 1);
    sums.inverse = io.Reads(inverse);
    sums.group = a.group;
    if (a.centered) {
        sums.means = sums.inverse + static_cast<uint64_t>(units.Count(e)) * sizeof(float);
    }
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
    ColumnSumsArgs args{of.dy, of.x, of.inverse, of.means};
    args.group = static_cast<uint32_t>(of.group);
    SumFactor factor = SumFactor::kNone;
    if (of.inverse != 0) {
        const bool plain = of.means == 0 && of.group == of.cols;
        factor = plain ? SumFactor::kScales : SumFactor::kNorms;
    }
    args.rows = static_cast<uint32_t>(of.rows);
    args.cols = static_cast<uint32_t>(of.cols);
    args.block_rows =
        static_cast<uint32_t>(std::max(kLeastBlockRows, CeilDiv(of.rows, kMostBlocks)));
    args.stride = static_cast<uint32_t>(4 * quads);
    BlockSums sums{{}, CeilDiv(of.rows, args.block_rows), args.stride};
    const auto bytes = static_cast<uint64_t>(sums.blocks * sums.stride) * sizeof(float);
    WEFT_ASSIGN(sums.region, e.Scratch("column sums", bytes));
    args.sums = io.Writes(sums.region);
    WEFT_TRY(io.Run("column_sums", {kWalkGroup, factor, io.types(), io.wide(), lanes}, args,
                    {CeilDiv(quads, lanes), sums.blocks, 1}));
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
