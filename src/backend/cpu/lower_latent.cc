// Lowers latent attention, attention to windows, and the indexers that choose the positions or
// blocks that attention reads (program/latent.h).
#include "backend/cpu/lowering.h"
#include "kernels/latent.h"
#include "kernels/sparse.h"

namespace weft::backend {
namespace {

using Sparse = kernels::SparseKernels;

kernels::Windows WindowsOf(int64_t stride) {
    return {stride, program::RowPositions(stride)};
}

// Writes rows into a cache with one row per `stride` positions. key: columns after those of
// `latent`, if any.
Status WriteRows(Lowering& l, ValueId latent, ValueId key, ValueId cache, int64_t stride = 1) {
    KernelCall<kernels::LatentWrite> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    call.Reads(call.latent, latent);
    call.rank = l.Cols(latent);
    if (key != program::kNoValue) {
        call.Reads(call.key, key);
        call.rope = l.Cols(key);
    }
    call.Writes(call.cache, cache);
    call.windows = WindowsOf(stride);
    if (call.rank + call.rope > kernels::kMostLatentColumns) {
        return l.Unsupported(fmt::format("{} columns are cached; at most {} are supported",
                                         call.rank + call.rope, kernels::kMostLatentColumns));
    }
    return call.Push();
}

// args: the arguments of `call`, or a part of them.
void FillLatent(Lowering& l, const Op& op, const program::LatentAttention& a, auto& call,
                kernels::LatentAttentionArgs& args) {
    call.Binds(args.sequences, Bound::kSequences);
    call.Reads(args.q_latent, op.inputs[0]);
    args.heads = a.heads;
    args.rank = l.Cols(op.inputs[a.Latent()]);
    if (a.keyed) {
        call.Reads(args.q_key, op.inputs[1]);
        args.rope = l.Cols(op.inputs[3]);
    }
    call.Reads(args.cache, op.inputs.back());
    args.scale = a.scale;
    if (a.sinks) call.Reads(args.sinks, op.inputs[a.Sinks()]);
    call.Owns(args.scratch, args.scratch_floats, kernels::LatentScratch(args.rank, args.rope));
    call.Writes(args.out, op.outputs[0]);
}

// scores: the number of scores of a row. rows: a part of the arguments of `call`.
void FillIndex(Lowering& l, const Op& op, auto& call, kernels::IndexRows& rows, int64_t heads,
               int64_t scores) {
    call.Binds(rows.sequences, Bound::kSequences);
    call.Reads(rows.q, op.inputs[0]);
    rows.heads = heads;
    rows.dim = l.Cols(op.inputs[1]);
    call.Reads(rows.cache, op.inputs.back());
    rows.positions = scores;
    call.Owns(rows.scratch, rows.scratch_floats, kernels::IndexScratch(heads, rows.dim, scores));
}

OperandRegion SharedScores(Lowering& l, int64_t scores) {
    return l.ScratchBytes("index scores", kernels::kIndexSharedRows * scores * kFloat);
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::LatentAttention& a) {
    const ValueId key = a.keyed ? op.inputs[3] : program::kNoValue;
    WEFT_TRY(WriteRows(l, op.inputs[a.Latent()], key, op.inputs.back()));
    if (a.Chooses(op.inputs.size())) {
        KernelCall<&Sparse::latent> call(l);
        FillLatent(l, op, a, call, call.all);
        call.Reads(call.chosen, op.inputs[a.Chosen()]);
        call.top = l.Cols(op.inputs[a.Chosen()]);
        return call.Push();
    }
    KernelCall<&Kernels::latent_attention> call(l);
    FillLatent(l, op, a, call, call);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::IndexTopK& a) {
    WEFT_TRY(WriteRows(l, op.inputs[1], program::kNoValue, op.inputs[3], a.stride));
    const int64_t count = l.Positions() / a.stride;
    const OperandRegion shared = SharedScores(l, l.Positions());
    const auto fill = [&](auto& call) {
        kernels::IndexRows& rows = call.rows;
        FillIndex(l, op, call, rows, l.Cols(op.inputs[2]), count);
        call.Reads(rows.weights, op.inputs[2]);
        rows.top = a.Windows(l.Cols(op.outputs[0]));
        rows.lists_positions = a.positions;
        rows.windows = WindowsOf(a.stride);
    };
    KernelCall<&Sparse::index_scores> score(l);
    fill(score);
    score.Writes(score.rows.shared, shared);
    WEFT_TRY(score.Push());
    KernelCall<&Sparse::index_choose> choose(l);
    fill(choose);
    choose.Reads(choose.rows.shared, shared);
    choose.Writes(choose.chosen, op.outputs[0]);
    return choose.Push();
}

Status Lower(Lowering& l, const Op& op, const program::IndexBlocks& a) {
    WEFT_TRY(WriteRows(l, op.inputs[1], program::kNoValue, op.inputs.back()));
    const int64_t count = kernels::BlockScoreFloats(a.heads, l.Positions(), a.block);
    const OperandRegion shared = SharedScores(l, count);
    const auto fill = [&](auto& call, kernels::BlockScoresArgs& args) {
        FillIndex(l, op, call, args.rows, a.heads, count);
        args.rows.top = l.Cols(op.outputs[0]) / a.heads;
        args.block = a.block;
        args.local = a.local;
    };
    KernelCall<&Sparse::block_scores> score(l);
    fill(score, score);
    score.Writes(score.rows.shared, shared);
    WEFT_TRY(score.Push());
    KernelCall<&Sparse::block_choose> choose(l);
    fill(choose, choose.scores);
    choose.Changes(choose.scores.rows.shared, shared);
    choose.Writes(choose.chosen, op.outputs[0]);
    return choose.Push();
}

Status Lower(Lowering& l, const Op& op, const program::WindowAttention& a) {
    const bool compresses = a.stride != 0;
    const ValueId row = op.inputs[1], cache = op.inputs[op.inputs.size() - (compresses ? 2 : 1)];
    WEFT_TRY(WriteRows(l, row, program::kNoValue, cache));
    if (compresses) {
        WEFT_TRY(WriteRows(l, op.inputs[3], program::kNoValue, op.inputs.back(), a.stride));
    }
    KernelCall<&Sparse::windows> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    call.Reads(call.q, op.inputs[0]);
    call.heads = a.heads;
    call.width = l.Cols(row);
    call.window = a.window;
    call.scale = a.scale;
    call.Reads(call.sinks, op.inputs[2]);
    call.Reads(call.cache, cache);
    if (compresses) {
        call.Reads(call.entries, op.inputs.back());
        call.windows = WindowsOf(a.stride);
    }
    if (a.chooses) {
        call.Reads(call.chosen, op.inputs[4]);
        call.top = l.Cols(op.inputs[4]);
    }
    call.Owns(call.scratch, call.scratch_floats, kernels::LatentScratch(call.width, 0));
    call.Writes(call.out, op.outputs[0]);
    return call.Push();
}

}  // namespace weft::backend
