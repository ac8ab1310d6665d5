// Products with weights, and rows of tables.
#include <algorithm>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/gemm.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::ValueId;

// Arguments of embedding.comp.
struct EmbeddingTableArgs {
    uint64_t plane[WeightLayout::kMostPlanes] = {};
    uint64_t tokens = 0, y = 0;
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
    uint32_t n = 0, cols = 0;
    int32_t first_row = 0;
};

// The table's rows as planes.
Result<EmbeddingTableArgs> TableArgsOf(const WeightPlace& table) {
    WEFT_ASSIGN(const PlaneArgs planes, PlanesOf(table));
    EmbeddingTableArgs args;
    std::ranges::copy(planes.plane, args.plane);
    std::ranges::copy(planes.row_units, args.row_units);
    args.n = static_cast<uint32_t>(table.rows);
    args.cols = static_cast<uint32_t>(table.cols);
    return args;
}

// The address of a MatMul's bias, or 0.
uint64_t BiasOf(const Emitter& e, const program::Op& op) {
    return op.inputs.size() == 3 ? e.Address(op.inputs[2]) : 0;
}
// The arguments of a MatMul, with the result at y.
ProductArgs ProductArgsOf(const Emitter& e, const program::Op& op, ValueId y) {
    ProductArgs args;
    args.x = e.Address(op.inputs[0]);
    args.y = e.Address(y);
    args.bias = BiasOf(e, op);
    return args;
}

}  // namespace

Status EmitDecode(Emitter& e, const WeightPlace& weight, int64_t begin, int64_t count, DType to,
                  const Region& out) {
    constexpr int64_t kMostRows = 32768;  // rows along y; further rows go along z
    WEFT_ASSIGN(EmbeddingTableArgs args, TableArgsOf(weight));
    args.y = out.address;
    args.n = static_cast<uint32_t>(count);
    args.first_row = static_cast<int32_t>(begin);
    WEFT_ASSIGN(const uint32_t type, ElementType(to));
    const uint32_t size = GroupSize(e.gpu());
    const int64_t down = std::min(count, kMostRows);
    return e.Run(ShaderOf("embedding", weight.dtype), {size, true, type}, args,
                 {CeilDiv(weight.cols, 32 * size), down, count == 0 ? 0 : CeilDiv(count, down)},
                 {AllOf(weight)}, {out});
}

namespace {

struct AddNoiseArgs {
    uint64_t y = 0, tokens = 0, keys = 0, amplitudes = 0;
    uint32_t rows = 0, cols = 0, table_rows = 0;
    int32_t first_row = 0;
};
Status AddNoise(Emitter& e, const program::Op& op, int64_t first_row) {
    const ValueId y = op.outputs[0];
    Operands io(e);
    AddNoiseArgs args;
    args.y = io.Adds(y);
    args.tokens = io.Reads(op.inputs[0]);
    args.keys = io.Reads(op.inputs[2]);
    args.amplitudes = io.Reads(op.inputs[3]);
    args.rows = static_cast<uint32_t>(e.Rows(y));
    args.cols = static_cast<uint32_t>(e.Cols(y));
    args.table_rows = static_cast<uint32_t>(e.program().value(op.inputs[1]).shape[0]);
    args.first_row = static_cast<int32_t>(first_row);
    return io.Run("add_noise", {kWalkGroup}, args,
                  {RowGroups(args.rows), CeilDiv(args.cols, kWalkGroup), 1});
}

Status LowerLookup(Emitter& e, const program::Op& op, const program::Embedding& a) {
    const ValueId tokens = op.inputs[0], y = op.outputs[0];
    if (e.trains() && !Info(e.program().value(op.inputs[1]).dtype).quantized) {
        return CopyRows(e, op.inputs[1], y, {CopyMode::kListed, tokens, 0, a.first_row});
    }
    const WeightPlace& table = e.Weight(op.inputs[1]);
    WEFT_ASSIGN(EmbeddingTableArgs args, TableArgsOf(table));
    Operands io(e);
    io.Reads(AllOf(table));
    args.tokens = io.Reads(tokens);
    args.y = io.Writes(y);
    args.first_row = static_cast<int32_t>(a.first_row);
    const uint32_t size = GroupSize(e.gpu());
    return io.Run(ShaderOf("embedding", table.dtype), {size, false, 0}, args,
                  {CeilDiv(table.cols, 32 * size), e.Rows(y), 1});
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const program::Embedding& a) {
    WEFT_TRY(LowerLookup(e, op, a));
    return op.inputs.size() > 2 ? AddNoise(e, op, a.first_row) : Status();
}

// A product's sums are float32, without further rounding. segment_cols, which bounds float32 sums
// within a float64 sum, has no effect here.
Status Lower(Emitter& e, const program::Op& op, const program::MatMul&) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    if (IsTrainingProduct(e, x, op.inputs[1], y)) {
        if (op.inputs.size() == 2) return EmitValueGemm(e, GemmForm::kNT, x, op.inputs[1], y);
        return MakeError(ErrorCode::kUnsupported,
                         "a matrix product for training has a bias; use a separate add_bias op");
    }
    return EmitProduct(e, ProductKind::kPlain, e.Weight(op.inputs[1]), ProductArgsOf(e, op, y),
                       e.Rows(x), 1, {e.All(x), {}, {e.All(y)}});
}

Status LowerGatedMatMul(Emitter& e, const program::Op* gate, const program::Op& up,
                        const program::Op& glu) {
    const program::Op& first = gate != nullptr ? *gate : up;
    const ValueId x = first.inputs[0], y = glu.outputs[0];
    Gated gated{glu.as<program::Glu>().activation, y};
    if (gate != nullptr) {
        gated.up = &e.Weight(up.inputs[1]);
        gated.bias = BiasOf(e, up);
    } else {
        gated.gate = e.All(glu.inputs[0]);
    }
    return EmitMatvec(e, ProductKind::kPlain, e.Weight(first.inputs[1]), ProductArgsOf(e, first, y),
                      e.Rows(x), 1, {e.All(x), {}, {e.All(y)}}, &gated);
}

namespace {

// A product for each head with its matrix [n, k] of a stack: kNT and kNN, of x with the matrix;
// kTN, which adds x^T . y to the matrix.
Status EmitHeadGemm(Emitter& e, GemmForm form, ValueId x, ValueId stack, ValueId y) {
    const program::Shape& shape = e.program().value(stack).shape;
    const int64_t heads = shape[0], n = shape[1], k = shape[2];
    WEFT_ASSIGN(const GemmMatrix xs, MatrixOf(e, x));
    WEFT_ASSIGN(const GemmMatrix ys, MatrixOf(e, y));
    WEFT_ASSIGN(const GemmMatrix all, MatrixOf(e, stack));
    Gemm gemm;
    gemm.form = form;
    gemm.accumulate = form == GemmForm::kTN;
    for (int64_t head = 0; head < heads; ++head) {
        const GemmMatrix own = all.Rows(head * n, n);
        const int64_t x_cols = form == GemmForm::kNT ? k : n, y_cols = n + k - x_cols;
        gemm.a = xs.Columns(head * x_cols, x_cols);
        gemm.b = form == GemmForm::kTN ? ys.Columns(head * k, k) : own;
        gemm.c = form == GemmForm::kTN ? own : ys.Columns(head * y_cols, y_cols);
        WEFT_TRY(EmitGemm(e, gemm));
    }
    return {};
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const program::HeadMatMulGradWeight&) {
    return EmitHeadGemm(e, GemmForm::kTN, op.inputs[0], op.outputs[0], op.inputs[1]);
}

Status Lower(Emitter& e, const program::Op& op, const program::HeadMatMul& a) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    if (e.trains()) {
        return EmitHeadGemm(e, a.transposed ? GemmForm::kNN : GemmForm::kNT, x, op.inputs[1], y);
    }
    for (const ValueId id : {x, y}) WEFT_TRY(CheckWide(e, id));
    const WeightPlace& weight = e.Weight(op.inputs[1]);
    ProductArgs args;
    args.x = e.Address(x);
    args.y = e.Address(y);
    return EmitProduct(e, ProductKind::kHeads, weight, args, e.Rows(x), weight.matrices,
                       {e.All(x), {}, {e.All(y)}});
}

}  // namespace weft::backend::on_gpu
