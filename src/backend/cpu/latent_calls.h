// Lowers latent attention, the indexer that chooses the positions that latent attention reads, and
// the indexer that chooses the blocks that attention reads.
#pragma once

#include "backend/cpu/inference_calls.h"
#include "kernels/latent.h"
#include "kernels/sparse.h"

namespace weft::backend {

class LatentCalls : protected InferenceCalls {
  protected:
    using InferenceCalls::InferenceCalls;

    Status Lower(const Op& op, const program::PickColumns& a) {
        CallOf<kernels::PickColumnsArgs> call;
        kernels::PickColumnsArgs& args = call.args;
        call.Reads(args.x, Of(op.inputs[0]));
        args.heads = a.heads;
        args.head_cols = Cols(op.inputs[0]) / a.heads;
        args.begin = a.begin;
        args.size = Cols(op.outputs[0]) / a.heads;
        call.Writes(args.y, Of(op.outputs[0]));
        call.Rows(args.rows);
        return Push<kernels::PickColumns>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::ScaleHeads&) {
        CallOf<kernels::ScaleHeadsArgs> call;
        kernels::ScaleHeadsArgs& args = call.args;
        call.Reads(args.x, Of(op.inputs[0]));
        call.Reads(args.positions, Of(op.inputs[1]));
        args.slope = Vector(op.inputs[2]);
        args.offset = Vector(op.inputs[3]);
        args.cols = Cols(op.inputs[0]);
        args.heads = ShapeOf(op.inputs[2])[0];
        call.Writes(args.y, Of(op.outputs[0]));
        call.Rows(args.rows);
        return Push<kernels::ScaleHeads>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::LatentAttention& a) {
        CallOf<kernels::LatentWriteArgs> write;
        write.Binds(write.args.sequences, Bound::kSequences);
        write.Reads(write.args.latent, Of(op.inputs[2]));
        write.Reads(write.args.key, Of(op.inputs[3]));
        const ValueId cached = op.inputs.back();
        const int64_t rank = write.args.rank = Cols(op.inputs[2]);
        const int64_t rope = write.args.rope = Cols(op.inputs[3]);
        write.args.cache = buffers_.cache(cached);
        write.Writes(write.args.cache.data, Of(cached));
        if (rank + rope > kernels::kMostLatentColumns) {
            return MakeError(
                ErrorCode::kUnsupported,
                "program op {} (latent_attention): {} columns are cached; at most {} are supported",
                op_, rank + rope, kernels::kMostLatentColumns);
        }
        WEFT_TRY(Push<kernels::LatentWrite>(write, op.outputs[0]));
        if (op.inputs.size() == 6) {
            CallOf<kernels::SparseLatentArgs> call;
            FillLatent(call, call.args.all, op, a);
            call.Reads(call.args.chosen, Of(op.inputs[4]));
            call.args.top = Cols(op.inputs[4]);
            return Push<RunSparseLatent>(call, op.outputs[0]);
        }
        CallOf<kernels::LatentAttentionArgs> call;
        FillLatent(call, call.args, op, a);
        return Push<&kernels::Kernels::latent_attention>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::IndexTopK& a) {
        WEFT_TRY(WriteRows(op, op.inputs[1], op.inputs[3], a.stride));
        CallOf<kernels::IndexScoresArgs> scores;
        FillIndex(scores, op, a.stride);
        scores.Writes(scores.args.rows.shared, SharedScores());
        WEFT_TRY(Push<RunIndexScores>(scores, op.outputs[0]));
        CallOf<kernels::IndexChooseArgs> choose;
        FillIndex(choose, op, a.stride);
        choose.Reads(choose.args.rows.shared, SharedScores());
        choose.Writes(choose.args.chosen, Of(op.outputs[0]));
        return Push<RunIndexChoose>(choose, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::IndexBlocks& a) {
        WEFT_TRY(WriteRows(op, op.inputs[1], op.inputs.back(), 1));
        CallOf<kernels::BlockScoresArgs> scores;
        FillBlockScores(scores, scores.args, op, a);
        const OperandRegion shared = ScratchBytes(
            "index scores", kernels::kIndexSharedRows * scores.args.rows.positions * kFloat);
        scores.Writes(scores.args.rows.shared, shared);
        WEFT_TRY(Push<RunBlockScores>(scores, op.outputs[0]));
        CallOf<kernels::BlockChooseArgs> choose;
        FillBlockScores(choose, choose.args.scores, op, a);
        choose.Changes(choose.args.scores.rows.shared, shared);
        choose.Writes(choose.args.chosen, Of(op.outputs[0]));
        return Push<RunBlockChoose>(choose, op.outputs[0]);
    }

    // Fills in the arguments for attention that reads chosen blocks.
    void FillBlocks(CallOf<kernels::BlockAttentionArgs>& call, const Op& op,
                    const program::Attention& a) {
        call.Reads(call.args.chosen, Of(op.inputs[3]));
        call.args.kv_heads = a.kv_heads;
        call.args.top = Cols(op.inputs[3]) / a.kv_heads;
        call.args.block = a.block;
    }
    static void RunBlockAttention(const kernels::Kernels& kernels,
                                  const kernels::BlockAttentionArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).block_attention(args, part, parts);
    }

    Status Lower(const Op& op, const program::WindowAttention& a) {
        const bool compresses = a.stride != 0;
        const ValueId cached = op.inputs[op.inputs.size() - (compresses ? 2 : 1)];
        WEFT_TRY(WriteRows(op, op.inputs[1], cached, 1));
        if (compresses) WEFT_TRY(WriteRows(op, op.inputs[3], op.inputs.back(), a.stride));
        CallOf<kernels::WindowAttentionArgs> call;
        kernels::WindowAttentionArgs& args = call.args;
        call.Binds(args.sequences, Bound::kSequences);
        call.Reads(args.q, Of(op.inputs[0]));
        args.heads = a.heads;
        args.width = Cols(op.inputs[1]);
        args.window = a.window;
        args.scale = a.scale;
        args.sinks = Vector(op.inputs[2]);
        args.cache = buffers_.cache(cached);
        call.Reads(args.cache.data, Of(cached));
        if (compresses) {
            args.entries = buffers_.cache(op.inputs.back());
            call.Reads(args.entries.data, Of(op.inputs.back()));
            args.windows = WindowsOf(a.stride);
        }
        if (a.chooses) {
            call.Reads(args.chosen, Of(op.inputs[4]));
            args.top = Cols(op.inputs[4]);
        }
        OwnsFloats(call, kernels::LatentScratch(args.width, 0));
        call.Writes(args.out, Of(op.outputs[0]));
        return Push<RunWindowAttention>(call, op.outputs[0]);
    }

  private:
    static void RunBlockScores(const kernels::Kernels& kernels,
                               const kernels::BlockScoresArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).block_scores(args, part, parts);
    }
    static void RunBlockChoose(const kernels::Kernels& kernels,
                               const kernels::BlockChooseArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).block_choose(args, part, parts);
    }
    static kernels::Windows WindowsOf(int64_t stride) {
        return {stride, program::RowPositions(stride)};
    }

    // Writes rows into a cache with one row per `stride` positions.
    Status WriteRows(const Op& op, ValueId rows, ValueId cached, int64_t stride) {
        CallOf<kernels::LatentWriteArgs> write;
        write.Binds(write.args.sequences, Bound::kSequences);
        write.Reads(write.args.latent, Of(rows));
        write.args.rank = Cols(rows);
        write.args.cache = buffers_.cache(cached);
        write.args.windows = WindowsOf(stride);
        write.Writes(write.args.cache.data, Of(cached));
        if (Cols(rows) > kernels::kMostLatentColumns) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} ({}): {} columns are cached; at most {} are supported",
                             op_, program::OpName(op.kind()), Cols(rows),
                             kernels::kMostLatentColumns);
        }
        return Push<kernels::LatentWrite>(write, op.outputs[0]);
    }

    static void RunWindowAttention(const kernels::Kernels& kernels,
                                   const kernels::WindowAttentionArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).windows(args, part, parts);
    }
    static void RunSparseLatent(const kernels::Kernels& kernels,
                                const kernels::SparseLatentArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).latent(args, part, parts);
    }
    static void RunIndexScores(const kernels::Kernels& kernels,
                               const kernels::IndexScoresArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).index_scores(args, part, parts);
    }
    static void RunIndexChoose(const kernels::Kernels& kernels,
                               const kernels::IndexChooseArgs& args, int part, int parts) {
        kernels::SparseKernelsFor(kernels.level).index_choose(args, part, parts);
    }

    // args: those of `call`, or a part of them.
    template <typename Args>
    void FillLatent(CallOf<Args>& call, kernels::LatentAttentionArgs& args, const Op& op,
                    const program::LatentAttention& a) {
        call.Binds(args.sequences, Bound::kSequences);
        call.Reads(args.q_latent, Of(op.inputs[0]));
        call.Reads(args.q_key, Of(op.inputs[1]));
        args.heads = a.heads;
        args.rank = Cols(op.inputs[2]);
        args.rope = Cols(op.inputs[3]);
        args.cache = buffers_.cache(op.inputs.back());
        call.Reads(args.cache.data, Of(op.inputs.back()));
        args.scale = a.scale;
        Owns(call, args.scratch, args.scratch_floats,
             kernels::LatentScratch(args.rank, args.rope) * kFloat, kFloat);
        call.Writes(args.out, Of(op.outputs[0]));
    }

    // args: those of `call`, or a part of them.
    template <typename Args>
    void FillBlockScores(CallOf<Args>& call, kernels::BlockScoresArgs& args, const Op& op,
                         const program::IndexBlocks& a) {
        kernels::IndexRows& rows = args.rows;
        call.Binds(rows.sequences, Bound::kSequences);
        call.Reads(rows.q, Of(op.inputs[0]));
        rows.heads = a.heads;
        rows.dim = Cols(op.inputs[1]);
        rows.top = Cols(op.outputs[0]) / a.heads;
        rows.cache = buffers_.cache(op.inputs.back());
        call.Reads(rows.cache.data, Of(op.inputs.back()));
        rows.positions = kernels::BlockScoreFloats(a.heads, Positions(), a.block);
        Owns(call, rows.scratch, rows.scratch_floats,
             kernels::IndexScratch(a.heads, rows.dim, rows.positions) * kFloat, kFloat);
        args.block = a.block;
        args.local = a.local;
    }

    // Maximum number of positions of a sequence: a sequence may own all pages.
    int64_t Positions() const { return options_.kv_pages * options_.page_tokens; }
    OperandRegion SharedScores() {
        return ScratchBytes("index scores", kernels::kIndexSharedRows * Positions() * kFloat);
    }
    template <typename Args>
    void FillIndex(CallOf<Args>& call, const Op& op, int64_t stride) {
        kernels::IndexRows& rows = call.args.rows;
        call.Binds(rows.sequences, Bound::kSequences);
        call.Reads(rows.q, Of(op.inputs[0]));
        call.Reads(rows.weights, Of(op.inputs[2]));
        rows.heads = Cols(op.inputs[2]);
        rows.dim = Cols(op.inputs[1]);
        rows.top = Cols(op.outputs[0]);
        rows.cache = buffers_.cache(op.inputs[3]);
        call.Reads(rows.cache.data, Of(op.inputs[3]));
        rows.positions = Positions() / stride;
        rows.windows = WindowsOf(stride);
        Owns(call, rows.scratch, rows.scratch_floats,
             kernels::IndexScratch(rows.heads, rows.dim, rows.positions) * kFloat, kFloat);
    }
};

}  // namespace weft::backend
