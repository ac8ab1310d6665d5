// Copies of rows and columns, and the gradient of an embedding.
#include <cstdint>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

struct CopyArgs {
    uint64_t x = 0, y = 0, list = 0;
    uint32_t x_rows = 0, x_cols = 0, y_rows = 0, y_cols = 0;
    int32_t shift = 0, first_row = 0;
};

struct EmbeddingGradArgs {
    uint64_t dy = 0, dtable = 0, tokens = 0, order = 0;
    uint32_t rows = 0, cols = 0, table_rows = 0;
    int32_t first_row = 0;
};

}  // namespace

Status CopyRows(Emitter& e, ValueId x, ValueId y, const RowsCopied& how) {
    const int64_t x_cols = e.Cols(x) / how.heads, y_cols = e.Cols(y) / how.heads;
    Operands io(e);
    for (const int64_t cols : {x_cols, y_cols, how.shift}) io.SetRows(cols);
    CopyArgs args;
    args.x = io.Reads(x, 0);
    args.y = how.keeps ? io.Adds(y, 1) : io.Writes(y, 1);
    args.list = io.Reads(how.list);
    args.x_rows = static_cast<uint32_t>(FlatRowsOf(e, x) * how.heads);
    args.x_cols = static_cast<uint32_t>(x_cols);
    args.y_rows = static_cast<uint32_t>(FlatRowsOf(e, y) * how.heads);
    args.y_cols = static_cast<uint32_t>(y_cols);
    args.shift = static_cast<int32_t>(how.shift);
    args.first_row = static_cast<int32_t>(how.first_row);
    const int64_t quads = args.y_rows * CeilDiv(y_cols, 4);
    return io.Run("copy", {kWalkGroup, how.mode, io.types(), io.wide(), how.keeps}, args,
                  {QuadGroups(4 * quads), 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::SelectRows&) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {CopyMode::kListed, op.inputs[1]});
}
Status Lower(Emitter& e, const Op& op, const program::SelectRowsGrad&) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {CopyMode::kFound, op.inputs[1]});
}
Status Lower(Emitter& e, const Op& op, const program::SliceRows&) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {.first_row = e.shape().own_begin});
}
Status Lower(Emitter& e, const Op& op, const program::SliceColumns& a) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {.shift = a.begin});
}
Status Lower(Emitter& e, const Op& op, const program::PadColumns& a) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {.shift = -a.begin});
}
Status Lower(Emitter& e, const Op& op, const program::PickColumns& a) {
    return CopyRows(e, op.inputs[0], op.outputs[0], {.shift = a.begin, .heads = a.heads});
}

Status Lower(Emitter& e, const Op& op, const program::PadHeads& a) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    WEFT_TRY(CopyRows(e, x, y, {.shift = -a.begin, .heads = a.heads}));
    if (op.inputs.size() == 1) return {};
    const int64_t after = a.begin + e.Cols(x) / a.heads;
    return CopyRows(e, op.inputs[1], y, {.shift = -after, .heads = a.heads, .keeps = true});
}

Status Lower(Emitter& e, const Op& op, const program::EmbeddingGrad& a) {
    const ValueId dy = op.inputs[0], table = op.outputs[0];
    Operands io(e);
    io.SetRows(e.Cols(dy));
    EmbeddingGradArgs args;
    args.dy = io.Reads(dy, 0);
    args.dtable = io.Adds(table, 1);
    args.tokens = io.Reads(op.inputs[1]);
    args.order = e.tables().token_order;
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, dy));
    args.cols = static_cast<uint32_t>(e.Cols(dy));
    args.table_rows = static_cast<uint32_t>(FlatRowsOf(e, table));
    args.first_row = static_cast<int32_t>(a.first_row);
    return io.Run("embedding_grad", {kWalkGroup, io.types(), io.wide()}, args,
                  {RowGroups(args.rows), QuadPieces(e.Cols(dy)), 1});
}

}  // namespace weft::backend::on_gpu
