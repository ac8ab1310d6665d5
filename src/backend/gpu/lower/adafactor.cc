// The four ops of Adafactor. Sums are float32 with an error of at most one rounding per element.
#include <algorithm>
#include <limits>

#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/update.h"

namespace weft::backend::on_gpu {
namespace {

using program::FactoredRun;
using program::FactoredTensor;
using program::Op;
using program::ValueId;

// Table entry as kernels read it (src/shaders/adafactor.comp).
struct FactoredBlock {
    uint32_t row = 0, rows = 0, cols = 0, skipped = 0, count = 0;
    uint32_t matrix_rows = 0, tensor_cols = 0;
    int64_t Matrices() const { return (row + rows - 1) / matrix_rows - row / matrix_rows + 1; }
};
struct FactoredRowsArgs {
    uint64_t gradient = 0, gradient_scale = 0, inverse_rows = 0, inverse_cols = 0, to = 0;
    FactoredBlock block;
};
struct FactoredColumnsArgs {
    uint64_t gradient = 0, gradient_scale = 0, sums = 0;
    FactoredBlock block;
    uint32_t turn = 0;
};
struct FactoredColumnsEndArgs {
    uint64_t sums = 0, to = 0;
    uint32_t pieces = 0, cols = 0, tensor_cols = 0;
};
struct FactoredMomentsArgs {
    uint64_t sums = 0, moments = 0, inverse = 0, new_part = 0;
    uint32_t rows_at = 0, cols_at = 0, rows = 0, cols = 0, matrices = 0;
    float eps_square = 0;
};
struct FactoredUpdateArgs {
    uint64_t gradient = 0, weights = 0, copy = 0;
    uint64_t gradient_scale = 0, rate = 0, inverse_rows = 0, inverse_cols = 0;
    uint64_t weight_squares = 0, update_squares = 0;
    FactoredBlock block;
    float elements = 0, eps_scale = 0, clip = 0, decay = 0;
};

constexpr int64_t kLeastTurn = 64, kMostPieces = 64;

Result<FactoredBlock> BlockOf(const FactoredRun& run) {
    const FactoredTensor& f = run.tensor;
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    const int64_t first = run.range.begin / run.col_count;
    const int64_t last = (run.range.end + run.col_count - 1) / run.col_count;
    if ((last - first) * run.col_count > kMost || f.rows > kMost || f.cols > kMost) {
        return MakeError(
            ErrorCode::kUnsupported,
            "a part has {} x {} elements; Adafactor on Vulkan devices supports at most {}",
            last - first, run.col_count, kMost);
    }
    FactoredBlock block;
    block.row = static_cast<uint32_t>(run.row_begin + first);
    block.rows = static_cast<uint32_t>(last - first);
    block.cols = static_cast<uint32_t>(run.col_count);
    block.skipped = static_cast<uint32_t>(run.range.begin - first * run.col_count);
    block.count = static_cast<uint32_t>(run.range.end - run.range.begin);
    block.matrix_rows = static_cast<uint32_t>(f.rows == 0 ? kMost : f.rows_of_one());
    block.tensor_cols = static_cast<uint32_t>(f.cols);
    return block;
}

// `all` is an array of the row (or column) numbers of all tensors. Returns the address of the
// number of the block's first row (or column). A vector has no row numbers.
uint64_t RowNumbers(const FactoredRun& run, const FactoredBlock& block, uint64_t all) {
    if (run.tensor.rows == 0) return 0;
    return all + static_cast<uint64_t>(run.tensor.rows_at + block.row) * sizeof(float);
}
uint64_t ColumnNumbers(const FactoredRun& run, const FactoredBlock& block, uint64_t all) {
    const int64_t at = run.tensor.ColsOf(block.row) + run.col_begin;
    return all + static_cast<uint64_t>(at) * sizeof(float);
}

bool IsEmpty(const FactoredRun& run) {
    return run.range.end <= run.range.begin;
}

// Bytes of the first `element` elements of a value.
uint64_t BytesTo(const Emitter& e, ValueId id, int64_t element) {
    return static_cast<uint64_t>(RowBytes(e.program().value(id).dtype, element));
}

Status SumRows(Emitter& e, const FactoredRun& run, const FactoredBlock& block, ValueId gradient,
               ValueId sums) {
    if (run.tensor.rows == 0) return {};
    Operands io(e, Operands::Count::kMany);
    FactoredRowsArgs args;
    args.gradient = io.Reads(gradient, 0) + BytesTo(e, gradient, run.own);
    args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
    args.to = RowNumbers(run, block, io.Adds(sums));
    args.block = block;
    return io.Run("adafactor_rows", {NormGroup(block.cols), io.types(), false}, args,
                  {RowGroups(block.rows), 1, 1});
}

Status SumColumns(Emitter& e, const FactoredRun& run, const FactoredBlock& block, ValueId gradient,
                  ValueId sums) {
    const int64_t rows = std::min(block.rows, block.matrix_rows), matrices = block.Matrices();
    const int64_t turn = std::max(kLeastTurn, CeilDiv(rows, kMostPieces));
    const int64_t pieces = CeilDiv(rows, turn), groups = CeilDiv(block.cols, kWalkGroup);
    const auto numbers = static_cast<uint64_t>(matrices * pieces) * block.cols;
    WEFT_ASSIGN(const Region parts, e.Scratch("factored columns", numbers * sizeof(float)));
    Operands io(e, Operands::Count::kMany), end_io(e, Operands::Count::kMany);
    FactoredColumnsArgs args;
    args.gradient = io.Reads(gradient, 0) + BytesTo(e, gradient, run.own);
    args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
    args.sums = io.Writes(parts);
    args.block = block;
    args.turn = static_cast<uint32_t>(turn);
    WEFT_TRY(
        io.Run("adafactor_columns", {kWalkGroup, io.types()}, args, {groups, pieces, matrices}));
    FactoredColumnsEndArgs end;
    end.sums = end_io.Reads(parts);
    end.to = ColumnNumbers(run, block, end_io.Adds(sums));
    end.pieces = static_cast<uint32_t>(pieces);
    end.cols = block.cols;
    end.tensor_cols = block.tensor_cols;
    return end_io.Run("adafactor_columns_end", {kWalkGroup}, end, {groups, matrices, 1});
}

// The region of one tensor's number in the array of all tensors' numbers.
Region TensorNumber(const Emitter& e, ValueId all, int64_t number) {
    return {e.Address(all) + static_cast<uint64_t>(number) * sizeof(float), sizeof(float)};
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::AdafactorSums& a) {
    const ValueId gradient = op.inputs[0], weights = op.inputs[1], sums = op.outputs[0];
    for (const ValueId id : {weights, sums}) WEFT_TRY(CheckWide(e, id));
    for (const FactoredRun& run : a.runs) {
        if (IsEmpty(run)) continue;
        WEFT_ASSIGN(const FactoredBlock block, BlockOf(run));
        WEFT_TRY(SumRows(e, run, block, gradient, sums));
        WEFT_TRY(SumColumns(e, run, block, gradient, sums));
        if (!a.sizes) continue;
        const program::ElementRange own{run.own, run.own + run.range.end - run.range.begin};
        WEFT_ASSIGN(const SquareBlocks squares, SumSquaresOf(e, weights, {&own, 1}));
        WEFT_TRY(AddSquareBlocks(e, squares, TensorNumber(e, sums, a.moments + run.tensor.number)));
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::AdafactorMoments& a) {
    for (const FactoredTensor& f : a.tensors) {
        Operands io(e);
        FactoredMomentsArgs args;
        args.sums = io.Reads(op.inputs[0]);
        args.moments = io.Adds(op.outputs[0]);
        args.inverse = io.Writes(op.outputs[1]);
        args.new_part = e.UpdateScalar(UpdateScalarKind::kPower, a.decay_rate);
        args.rows_at = static_cast<uint32_t>(f.rows_at);
        args.cols_at = static_cast<uint32_t>(f.cols_at);
        args.rows = static_cast<uint32_t>(f.rows == 0 ? 0 : f.rows_of_one());
        args.cols = static_cast<uint32_t>(f.cols);
        args.matrices = static_cast<uint32_t>(f.matrices);
        args.eps_square = static_cast<float>(a.eps_square);
        WEFT_TRY(io.Run("adafactor_moments", {kWalkGroup}, args, {RowGroups(f.matrices), 1, 1}));
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::AdafactorSizes& a) {
    const ValueId gradient = op.inputs[0], squares = op.outputs[0];
    WEFT_TRY(CheckWide(e, squares));
    for (const FactoredRun& run : a.runs) {
        if (IsEmpty(run)) continue;
        WEFT_ASSIGN(const FactoredBlock block, BlockOf(run));
        SquareBlocks rows{{}, block.rows};
        WEFT_ASSIGN(rows.region, e.Scratch("squares", uint64_t{block.rows} * 2 * sizeof(float)));
        Operands io(e, Operands::Count::kMany);
        FactoredRowsArgs args;
        args.gradient = io.Reads(gradient, 0) + BytesTo(e, gradient, run.own);
        args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
        const uint64_t inverse = io.Reads(op.inputs[1]);
        args.inverse_rows = RowNumbers(run, block, inverse);
        args.inverse_cols = ColumnNumbers(run, block, inverse);
        args.to = io.Writes(rows.region);
        args.block = block;
        WEFT_TRY(io.Run("adafactor_rows", {NormGroup(block.cols), io.types(), true}, args,
                        {RowGroups(block.rows), 1, 1}));
        WEFT_TRY(AddSquareBlocks(e, rows, TensorNumber(e, squares, run.tensor.number)));
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::AdafactorUpdate& a) {
    const ValueId gradient = op.inputs[0], sums = op.inputs[2], squares = op.inputs[3];
    const ValueId weights = op.inputs[4];
    const ValueId copy = op.inputs.size() > 5 ? op.inputs[5] : program::kNoValue;
    Operands io(e, Operands::Count::kMany);
    const uint64_t inverse = io.Reads(op.inputs[1]), weights_at = io.Adds(weights);
    const uint64_t gradient_at = io.Reads(gradient, 0), copy_at = io.Adds(copy, 1);
    for (const ValueId id : {sums, squares}) io.Reads(id);
    for (const FactoredRun& run : a.runs) {
        if (IsEmpty(run)) continue;
        FactoredUpdateArgs args;
        WEFT_ASSIGN(args.block, BlockOf(run));
        args.gradient = gradient_at + BytesTo(e, gradient, run.own);
        args.weights = weights_at + BytesTo(e, weights, run.own);
        args.copy = copy == program::kNoValue ? 0 : copy_at + BytesTo(e, copy, run.own);
        args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
        args.rate = a.relative_step ? e.UpdateScalar(UpdateScalarKind::kPower, -0.5)
                                    : e.UpdateScalar(UpdateScalarKind::kRate);
        args.inverse_rows = RowNumbers(run, args.block, inverse);
        args.inverse_cols = ColumnNumbers(run, args.block, inverse);
        args.weight_squares = a.scale_parameter
                                  ? TensorNumber(e, sums, a.moments + run.tensor.number).address
                                  : e.Address(squares);
        args.update_squares = TensorNumber(e, squares, run.tensor.number).address;
        args.elements = static_cast<float>(run.tensor.elements());
        args.eps_scale = static_cast<float>(a.eps_scale);
        args.clip = static_cast<float>(a.clip_threshold);
        args.decay = run.decays ? static_cast<float>(a.decay) : 0.0f;
        WEFT_TRY(io.Run("adafactor_update",
                        {kWalkGroup, io.types(), a.scale_parameter, a.relative_step}, args,
                        {RowGroups(args.block.rows), CeilDiv(args.block.cols, kWalkGroup), 1}));
    }
    return {};
}

}  // namespace weft::backend::on_gpu
