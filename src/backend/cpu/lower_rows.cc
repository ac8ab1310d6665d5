// Lowers lookups and copies of rows, and copies of columns.
#include "backend/cpu/lowering.h"
#include "kernels/dense/heads.h"
#include "kernels/dense/lookup.h"

namespace weft::backend {
namespace {

// Copies this rank's rows of x, from row `first` on.
struct SliceRowsCall {
    dense::CopyColumnsArgs copy;
    int64_t first = 0;
};
void RunSliceRows(const Kernels& kernels, const SliceRowsCall& a, int part, int parts) {
    dense::CopyColumnsArgs copy = a.copy;
    copy.x = copy.x.From(a.first, 0);
    dense::CopyColumns(kernels, copy, part, parts);
}

void CopyColumns(const Op& op, auto& call, dense::CopyColumnsArgs& args) {
    call.Operands(args.x, args.y);
    args.cols = std::min(args.x.stride, args.y.stride);
    args.y_cols = args.y.stride;
    call.Rows(args.rows, op.outputs[0]);
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::Embedding& a) {
    const ValueId table = op.inputs[1], y = op.outputs[0];
    if (!l.trains()) {
        KernelCall<&Kernels::embedding> call(l);
        call.weight = l.buffers.matrix(table);
        call.first_row = a.first_row;
        call.Reads(call.tokens, op.inputs[0]);
        call.Writes(call.y, y);
        call.y_stride = l.Cols(y);
        call.Rows(call.count, y);
        return call.Push();
    }
    KernelCall<dense::Lookup> call(l);
    if (Info(l.TypeOf(table)).quantized) {
        if (l.TypeOf(y) != DType::kF32) {
            return l.Unsupported("rows of a block type need float32 output");
        }
        call.Reads(call.blocks, table);
        call.block_type = l.TypeOf(table);
    } else {
        call.Reads(call.table, table);
    }
    call.table_rows = l.ShapeOf(table)[0];
    call.first_row = a.first_row;
    call.Reads(call.ids, op.inputs[0]);
    if (op.inputs.size() > 2) {
        call.Reads(call.keys, op.inputs[2]);
        call.Reads(call.amplitudes, op.inputs[3]);
    }
    call.Writes(call.y, y);
    call.cols = l.Cols(y);
    call.Rows(call.count, y);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::EmbeddingGrad& a) {
    KernelCall<dense::EmbeddingGrad> call(l);
    call.Operands(call.dy, call.tokens, call.table);
    call.Binds(call.order, Bound::kTokenOrder);
    call.cols = l.Cols(op.inputs[0]);
    call.table_rows = l.ShapeOf(op.outputs[0])[0];
    call.first_row = a.first_row;
    call.Rows(call.count, op.inputs[0]);
    call.Owns(call.scratch, call.scratch_bytes, dense::EmbeddingGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SelectRows&) {
    KernelCall<dense::Lookup> call(l);
    call.Operands(call.table, call.ids, call.y);
    call.cols = l.Cols(op.outputs[0]);
    call.Rows(call.count, op.outputs[0]);
    call.MoreRows(call.table_rows, op.inputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SelectRowsGrad&) {
    KernelCall<dense::ScatterRows> call(l);
    call.Operands(call.x, call.ids, call.y);
    call.RowsAndCols(op.outputs[0]);
    call.MoreRows(call.count, op.inputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SliceRows&) {
    KernelCall<RunSliceRows> call(l);
    call.Binds(call.first, Bound::kFirstOwnRow);
    CopyColumns(op, call, call.copy);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SliceColumns& a) {
    KernelCall<dense::CopyColumns> call(l);
    CopyColumns(op, call, call);
    call.x_begin = a.begin;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::PadColumns& a) {
    KernelCall<dense::CopyColumns> call(l);
    CopyColumns(op, call, call);
    call.y_begin = a.begin;
    call.built.light = !l.IsSlots(op.inputs[0]);
    l.used_columns[op.outputs[0]] = {a.begin, a.begin + call.cols};
    return call.Push();
}

namespace {

// Copies the columns of heads; each of them has all columns of a head of the narrower matrix.
Status PushHeadColumns(Lowering& l, const Op& op, ValueId x, int64_t heads, int64_t x_begin,
                       int64_t y_begin, bool clears) {
    KernelCall<dense::HeadColumns> call(l);
    call.Reads(call.x, x);
    call.Writes(call.y, op.outputs[0]);
    call.heads = heads;
    call.x_head = l.Cols(x) / heads;
    call.y_head = l.Cols(op.outputs[0]) / heads;
    call.x_begin = x_begin;
    call.y_begin = y_begin;
    call.cols = std::min(call.x_head, call.y_head);
    call.clears = clears;
    call.Rows(call.rows, op.outputs[0]);
    return call.Push();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::PadHeads& a) {
    WEFT_TRY(PushHeadColumns(l, op, op.inputs[0], a.heads, 0, a.begin, true));
    if (op.inputs.size() == 1) return {};
    const int64_t after = a.begin + l.Cols(op.inputs[0]) / a.heads;
    return PushHeadColumns(l, op, op.inputs[1], a.heads, 0, after, false);
}

Status Lower(Lowering& l, const Op& op, const program::PickColumns& a) {
    if (l.trains()) return PushHeadColumns(l, op, op.inputs[0], a.heads, a.begin, 0, false);
    KernelCall<kernels::PickColumns> call(l);
    call.Operands(call.x, call.y);
    call.heads = a.heads;
    call.head_cols = l.Cols(op.inputs[0]) / a.heads;
    call.begin = a.begin;
    call.size = l.Cols(op.outputs[0]) / a.heads;
    call.Rows(call.rows, op.outputs[0]);
    return call.Push();
}

}  // namespace weft::backend
