// Lowering of latent attention and of the indexer that chooses its positions.
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
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (latent_attention): {} columns are cached; most: {}",
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

    Status Lower(const Op& op, const program::IndexTopK&) {
        const ValueId key = op.inputs[1], cached = op.inputs[3];
        CallOf<kernels::LatentWriteArgs> write;
        write.Binds(write.args.sequences, Bound::kSequences);
        write.Reads(write.args.latent, Of(key));
        write.args.rank = Cols(key);
        write.args.cache = buffers_.cache(cached);
        write.Writes(write.args.cache.data, Of(cached));
        if (Cols(key) > kernels::kMostLatentColumns) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (index_top_k): {} columns are cached; most: {}", op_,
                             Cols(key), kernels::kMostLatentColumns);
        }
        WEFT_TRY(Push<kernels::LatentWrite>(write, op.outputs[0]));
        CallOf<kernels::IndexScoresArgs> scores;
        FillIndex(scores, op);
        scores.Writes(scores.args.rows.shared, SharedScores());
        WEFT_TRY(Push<RunIndexScores>(scores, op.outputs[0]));
        CallOf<kernels::IndexChooseArgs> choose;
        FillIndex(choose, op);
        choose.Reads(choose.args.rows.shared, SharedScores());
        choose.Writes(choose.args.chosen, Of(op.outputs[0]));
        return Push<RunIndexChoose>(choose, op.outputs[0]);
    }

  private:
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

    // Positions of a sequence: it may have all pages.
    int64_t Positions() const { return options_.kv_pages * options_.page_tokens; }
    Region SharedScores() {
        return ScratchBytes("index scores", kernels::kIndexSharedRows * Positions() * kFloat);
    }
    template <typename Args>
    void FillIndex(CallOf<Args>& call, const Op& op) {
        kernels::IndexRows& rows = call.args.rows;
        call.Binds(rows.sequences, Bound::kSequences);
        call.Reads(rows.q, Of(op.inputs[0]));
        call.Reads(rows.weights, Of(op.inputs[2]));
        rows.heads = Cols(op.inputs[2]);
        rows.dim = Cols(op.inputs[1]);
        rows.top = Cols(op.outputs[0]);
        rows.cache = buffers_.cache(op.inputs[3]);
        call.Reads(rows.cache.data, Of(op.inputs[3]));
        rows.positions = Positions();
        Owns(call, rows.scratch, rows.scratch_floats,
             kernels::IndexScratch(rows.heads, rows.dim, rows.positions) * kFloat, kFloat);
    }
};

}  // namespace weft::backend
