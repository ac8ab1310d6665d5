// Lowers matrix products, their gradients and biases. Inference multiplies packed
// weights; training multiplies row-major ones (kernels/dense/gemm.h).
#include "backend/cpu/products.h"
#include "kernels/dense/heads.h"
#include "kernels/dense/lookup.h"

namespace weft::backend {
namespace {

// A weight of a block type whose widened size exceeds this is widened some rows at a time.
constexpr int64_t kWholeBytes = 32 << 20, kWidenedBytes = 8 << 20, kWidenedUnit = 32;

OperandRegion ActivationBuffer(Lowering& l, size_t which, ValueId x, int64_t bytes) {
    const auto [dim, factor] = l.RowsAndFactor(x);
    return l.ScratchRows(which == 0 ? "prepared" : "prepared 1", bytes * factor,
                         l.MostRows(x) / factor);
}

// ---- Packed -------------------------------------------------------------------------------------

Status PackedProduct(Lowering& l, const Op& op, const program::MatMul& a) {
    KernelCall<&Kernels::matmul> call(l);
    const ValueId y = op.outputs[0];
    call.weight = l.buffers.matrix(op.inputs[1]);
    call.x_stride = call.weight.cols;
    WEFT_TRY(ReadsLeft(l, op, call));
    if (op.inputs.size() == 3) call.Reads(call.bias, op.inputs[2]);
    call.segment_cols = a.segment_cols;
    call.x_used = l.used_columns[op.inputs[0]];
    if (l.IsWide(y)) {
        call.Writes(call.wide, y);
    } else if (IsRoundedLate(l, y)) {
        call.Writes(call.wide, Unrounded(l, y));
    } else {
        call.Writes(call.y, y);
    }
    call.y_stride = l.Cols(y);
    call.Rows(call.rows, y);
    return call.Push();
}

// ---- Row-major ----------------------------------------------------------------------------------

enum class ReadBy { kRows, kColumns };

void ReadsFactor(auto& call, dense::GemmOperand& factor, const RowMajor& x, ReadBy by,
                 int64_t first_byte = 0) {
    call.Reads(factor.data, x.region, first_byte);
    factor.row = by == ReadBy::kRows ? x.cols : 1;
    factor.col = by == ReadBy::kRows ? 1 : x.cols;
    factor.type = ElementOf(x.dtype);
}

// rows: the dimension that equals the rows of rows_like.
Status PushGemm(Lowering& l, KernelCall<&Kernels::gemm>& call, int64_t& rows, ValueId rows_like) {
    call.compute = l.compute();
    rows = l.MostRows(rows_like);
    call.Owns(call.scratch, call.scratch_bytes, l.kernels.gemm_scratch_bytes(call));
    call.Rows(rows, rows_like);
    return call.Push();
}

// Number of rows of a weight that are multiplied at a time.
int64_t BlockRows(const Lowering& l, ValueId weight) {
    const int64_t rows = l.ShapeOf(weight)[0];
    const int64_t row_bytes = RowBytes(l.options.compute, l.Cols(weight));
    if (!Info(l.TypeOf(weight)).quantized || rows * row_bytes <= kWholeBytes) return rows;
    return std::min(std::max(kWidenedBytes / row_bytes / kWidenedUnit, int64_t{1}) * kWidenedUnit,
                    rows);
}

}  // namespace

Result<RowMajor> Widened(Lowering& l, ValueId weight, int64_t begin, int64_t count,
                         const OperandRegion* chosen) {
    const RowMajor stored = l.RowMajorOf(weight);
    if (!Info(stored.dtype).quantized) return stored;
    const int64_t bytes = RowBytes(l.options.compute, count * stored.cols);
    const RowMajor wide{l.options.compute, stored.cols, l.ScratchBytes("widened", bytes)};
    KernelCall<dense::Decode> call(l);
    call.dtype = stored.dtype;
    call.Reads(call.x, weight, begin * stored.cols);
    call.matrix_rows = count;
    call.cols = stored.cols;
    if (chosen != nullptr) call.Reads(call.begin, *chosen);
    call.Writes(call.y, wide);
    call.Owns(call.scratch, call.scratch_bytes, dense::DecodeScratchBytes(call));
    WEFT_TRY(call.Push());
    return wide;
}

Result<OperandRegion> Prepare(Lowering& l, ValueId x, kernels::ActivationFormat as, int64_t heads) {
    const int64_t cols = l.Cols(x) / heads;
    const int64_t bytes = heads * l.kernels.quantized_bytes(cols);
    const Lowering::Activations wanted{x, as, heads};
    auto& prepared = l.prepared.activations;
    const auto found = std::ranges::find(prepared, wanted);
    if (found != prepared.end()) {
        return ActivationBuffer(l, static_cast<size_t>(found - prepared.begin()), x, bytes);
    }
    const size_t which = l.last_activation ^= 1;
    prepared[which] = wanted;
    const OperandRegion out = ActivationBuffer(l, which, x, bytes);
    KernelCall<&Kernels::quantize_activations> call(l);
    call.as = as;
    call.Reads(call.x, x);
    call.cols = call.x_stride = cols;
    call.Writes(call.out, out);
    call.Rows(call.rows, x, heads);
    call.built.light = !l.IsSlots(x);
    WEFT_TRY(call.Push());
    return out;
}

// y = x . W^T
Status Lower(Lowering& l, const Op& op, const program::MatMul& a) {
    if (!l.trains()) return PackedProduct(l, op, a);
    if (op.inputs.size() == 3) return l.Unsupported("a bias is an op of its own (train/graph.cc)");
    const ValueId x = op.inputs[0], weight = op.inputs[1], y = op.outputs[0];
    const int64_t rows = l.ShapeOf(weight)[0], block = BlockRows(l, weight);
    for (int64_t at = 0; at < rows; at += block) {
        const int64_t count = std::min(block, rows - at);
        WEFT_ASSIGN(const RowMajor w, Widened(l, weight, at, count));
        KernelCall<&Kernels::gemm> call(l);
        ReadsFactor(call, call.a, l.RowMajorOf(x), ReadBy::kRows);
        ReadsFactor(call, call.b, w, ReadBy::kColumns);
        call.Writes(call.c, y, at);
        call.n = count;
        call.k = w.cols;
        WEFT_TRY(PushGemm(l, call, call.m, x));
    }
    return {};
}

// dx = dy . W. With several blocks of W the sum stays float32 until it is complete.
Status Lower(Lowering& l, const Op& op, const program::MatMulGradInput&) {
    const ValueId dy = op.inputs[0], weight = op.inputs[1], dx = op.outputs[0];
    const int64_t rows = l.ShapeOf(weight)[0], cols = l.Cols(weight), block = BlockRows(l, weight);
    const bool sums = block < rows && l.TypeOf(dx) != DType::kF32;
    const int64_t sum_bytes = l.MostRows(dx) * cols * kFloat;
    const RowMajor sum =
        sums ? RowMajor{DType::kF32, cols, l.ScratchBytes("sums", sum_bytes)} : l.RowMajorOf(dx);
    for (int64_t at = 0; at < rows; at += block) {
        const int64_t count = std::min(block, rows - at);
        WEFT_ASSIGN(const RowMajor w, Widened(l, weight, at, count));
        KernelCall<&Kernels::gemm> call(l);
        ReadsFactor(call, call.a, l.RowMajorOf(dy), ReadBy::kRows, RowBytes(l.TypeOf(dy), at));
        ReadsFactor(call, call.b, w, ReadBy::kRows);
        call.Writes(call.c, sum);
        call.n = cols;
        call.k = count;
        call.accumulate = at > 0;
        WEFT_TRY(PushGemm(l, call, call.m, dx));
    }
    if (!sums) return {};
    KernelCall<&Kernels::scale> call(l);
    call.Reads(call.x, sum);
    call.Writes(call.y, dx);
    return call.PushRows(dx);
}

// dW += dy^T . x
Status Lower(Lowering& l, const Op& op, const program::MatMulGradWeight&) {
    const ValueId dy = op.inputs[0], x = op.inputs[1];
    KernelCall<&Kernels::gemm> call(l);
    ReadsFactor(call, call.a, l.RowMajorOf(dy), ReadBy::kColumns);
    ReadsFactor(call, call.b, l.RowMajorOf(x), ReadBy::kRows);
    call.Changes(call.c, op.outputs[0]);
    call.m = l.Cols(dy);
    call.n = l.Cols(x);
    call.accumulate = true;
    return PushGemm(l, call, call.k, x);
}

Status Lower(Lowering& l, const Op&, const program::AddBias&) {
    KernelCall<&Kernels::add_bias> call(l);
    call.Operands(call.x, call.bias, call.y);
    call.built.light = true;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::BiasGrad&) {
    KernelCall<&Kernels::bias_grad> call(l);
    call.Operands(call.dy, call.db);
    return call.PushRows(op.inputs[0]);
}

namespace {

// The product of each head; stack: the heads' matrices, read or changed.
Status PushHeadGemm(Lowering& l, const Op& op, dense::HeadProduct product, ValueId stack) {
    const program::Shape& shape = l.ShapeOf(stack);
    const int64_t matrices = shape[0] * shape[1];
    const bool adds = product == dense::HeadProduct::kTN;
    KernelCall<dense::HeadGemm> call(l);
    call.product = product;
    call.compute = l.compute();
    call.heads = shape[0];
    call.n = shape[1];
    call.k = shape[2];
    call.Reads(call.a, op.inputs[0]);
    if (adds) {
        call.Reads(call.b, op.inputs[1]);
        call.Changes(call.dw, stack);
    } else {
        WEFT_ASSIGN(const RowMajor w, Widened(l, stack, 0, matrices));
        call.Reads(call.w, w);
        call.Writes(call.c, op.outputs[0]);
    }
    call.rows = l.MostRows(op.inputs[0]);
    call.Owns(call.scratch, call.scratch_bytes, dense::HeadGemmScratchBytes(l.kernels, call));
    call.Rows(call.rows, op.inputs[0]);
    return call.Push();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::HeadMatMulGradWeight&) {
    return PushHeadGemm(l, op, dense::HeadProduct::kTN, op.outputs[0]);
}

Status Lower(Lowering& l, const Op& op, const program::HeadMatMul& a) {
    if (l.trains()) {
        const auto product = a.transposed ? dense::HeadProduct::kNN : dense::HeadProduct::kNT;
        return PushHeadGemm(l, op, product, op.inputs[1]);
    }
    if (a.transposed) return l.Unsupported("only training multiplies by the other side");
    KernelCall<kernels::HeadMatMul> call(l);
    call.weight = l.buffers.stack(op.inputs[1]);
    WEFT_TRY(ReadsLeft(l, op, call, call.weight.count));
    call.Writes(call.y, op.outputs[0]);
    OwnsGroupScratch(l, call);
    call.Rows(call.rows, op.outputs[0]);
    return call.Push();
}

}  // namespace weft::backend
