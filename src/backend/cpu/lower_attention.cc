// Lowers attention: to cached keys in inference, and to the rows of the step in training.
#include "backend/cpu/lowering.h"
#include "kernels/dense/heads.h"

namespace weft::backend {
namespace {

void SetHeads(auto& args, const program::Attention& a) {
    args.heads = a.heads;
    args.first_head = a.first_head;
    args.group = a.group;
    args.first_kv_head = a.first_kv_head;
    args.scale = a.scale;
    args.window = a.window;
    args.soft_cap = a.soft_cap;
    if (!a.slopes.empty()) args.slopes = a.slopes.data();
}

// ---- Cached -------------------------------------------------------------------------------------

Status WriteCaches(Lowering& l, const Op& op) {
    KernelCall<&Kernels::kv_write> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    call.Reads(call.k, op.inputs[1]);
    call.Reads(call.v, op.inputs[2]);
    call.k_stride = l.Cols(op.inputs[1]);
    call.v_stride = l.Cols(op.inputs[2]);
    call.Writes(call.k_cache, op.inputs.end()[-2]);
    call.Writes(call.v_cache, op.inputs.back());
    return call.Push();
}

// args: the arguments of `call`, or a part of them.
void FillCached(Lowering& l, const Op& op, const program::Attention& a, auto& call,
                kernels::AttentionArgs& args) {
    call.Binds(args.sequences, Bound::kSequences);
    call.Reads(args.q, op.inputs[0]);
    args.q_stride = l.Cols(op.inputs[0]);
    args.out_stride = l.Cols(op.outputs[0]);
    call.Reads(args.k_cache, op.inputs.end()[-2]);
    call.Reads(args.v_cache, op.inputs.back());
    SetHeads(args, a);
    args.chunk = a.chunk;
    args.ahead = a.ahead;
    if (a.sinks) call.Reads(args.sinks, op.inputs[3]);
    call.Owns(args.scratch, args.scratch_floats,
              l.kernels.attention_scratch(std::max(a.head_dim, a.ValueDim()), a.group));
    call.Writes(args.out, op.outputs[0]);
}

Status LowerCached(Lowering& l, const Op& op, const program::Attention& a) {
    WEFT_TRY(WriteCaches(l, op));
    if (a.block == 0) {
        KernelCall<&Kernels::attention> call(l);
        FillCached(l, op, a, call, call);
        return call.Push();
    }
    KernelCall<&kernels::SparseKernels::block_attention> call(l);
    FillCached(l, op, a, call, call.all);
    call.Reads(call.chosen, op.inputs[3]);
    call.kv_heads = a.kv_heads;
    call.top = l.Cols(op.inputs[3]) / a.kv_heads;
    call.block = a.block;
    return call.Push();
}

// ---- Causal -------------------------------------------------------------------------------------

// Fills in the heads, and one sequence, the longest possible, for the size of scratch memory.
void FillCausal(const Lowering& l, const program::Attention& a, dense::CausalArgs& args,
                kernels::Sequence& longest) {
    int64_t rows = l.LongestSequence();
    if (a.chunk > 0) rows = std::min(rows, a.chunk);
    longest = {0, static_cast<int32_t>(rows), 0, {}};
    args.sequences = {&longest, 1};
    SetHeads(args, a);
    args.kv_heads = a.kv_heads;
    args.head_dim = a.head_dim;
    args.compute = l.compute();
}

// Attention in chunks of positions: each chunk of a sequence is a sequence of its own. A part's
// scratch memory begins with `most` of them.
template <typename Args>
struct InChunks : WithScratch<Args> {
    int32_t chunk = 0, most = 0;

    int64_t ListBytes() const {
        return (most * static_cast<int64_t>(sizeof(kernels::Sequence)) + 63) / 64 * 64;
    }
    std::byte* Own(int part) const { return this->scratch + part * this->scratch_bytes; }
    std::span<const kernels::Sequence> Pieces(std::span<const kernels::Sequence> whole,
                                              int part) const {
        auto* const list = reinterpret_cast<kernels::Sequence*>(Own(part));
        size_t count = 0;
        for (const kernels::Sequence& sequence : whole) {
            for (int32_t at = 0; at < sequence.row_count; at += chunk) {
                const int32_t rows = std::min(chunk, sequence.row_count - at);
                WEFT_CHECK(count < static_cast<size_t>(most));
                std::construct_at(list + count++,
                                  kernels::Sequence{sequence.row_begin + at, rows, 0, {}});
            }
        }
        return {list, count};
    }
    std::span<std::byte> Scratch(int part) const {
        return {Own(part) + ListBytes(), static_cast<size_t>(this->scratch_bytes - ListBytes())};
    }
};
void RunInChunks(const Kernels& kernels, const InChunks<dense::CausalArgs>& all, int part,
                 int parts) {
    dense::CausalArgs args = all;
    args.sequences = all.Pieces(args.sequences, part);
    kernels.causal(args, all.Scratch(part), part, parts);
}
void RunGradInChunks(const Kernels& kernels, const InChunks<dense::CausalGradArgs>& all, int part,
                     int parts) {
    dense::CausalGradArgs args = all;
    args.forward.sequences = all.Pieces(args.forward.sequences, part);
    kernels.causal_grad(args, all.Scratch(part), part, parts);
}

// Takes scratch memory. A step of max_tokens rows has at most as many sequences and chunks as rows.
void OwnsScratch(const Lowering& l, const program::Attention& a, auto& call, int64_t bytes) {
    if constexpr (requires { call.chunk; }) {
        call.chunk = static_cast<int32_t>(a.chunk);
        call.most = static_cast<int32_t>(l.options.max_tokens);
        bytes += call.ListBytes();
    }
    call.Owns(call.scratch, call.scratch_bytes, bytes);
}

template <auto kKernel>
Status PushCausal(Lowering& l, const Op& op, const program::Attention& a) {
    KernelCall<kKernel> call(l);
    kernels::Sequence longest;
    FillCausal(l, a, call, longest);
    call.Operands(call.q, call.k, call.v);
    if (a.sinks) call.Reads(call.sinks, op.inputs[3]);
    call.Writes(call.out, op.outputs[0]);
    // (If no earlier op is trained, no gradient passes through attention, and it has no lse.)
    if (op.outputs.size() == 2) {
        call.Writes(call.lse, op.outputs[1]);
        call.MoreRows(call.lse_stride, op.outputs[0]);
    }
    OwnsScratch(l, a, call, l.kernels.causal_scratch_bytes(call));
    call.Binds(call.sequences, Bound::kSequences);
    return call.Push();
}

template <auto kKernel>
Status PushCausalGrad(Lowering& l, const Op& op, const program::Attention& a) {
    KernelCall<kKernel> call(l);
    dense::CausalArgs& forward = call.forward;
    kernels::Sequence longest;
    FillCausal(l, a, forward, longest);
    call.Operands(call.dout, forward.q, forward.k, forward.v, forward.out, forward.lse);
    if (a.sinks) call.Reads(forward.sinks, op.inputs[6]);
    call.Writes(call.dq, op.outputs[0]);
    call.Writes(call.dk, op.outputs[1]);
    call.Writes(call.dv, op.outputs[2]);
    call.MoreRows(forward.lse_stride, op.inputs[0]);
    OwnsScratch(l, a, call, l.kernels.causal_grad_scratch_bytes(call));
    call.Binds(forward.sequences, Bound::kSequences);
    return call.Push();
}

Status PushSinksGrad(Lowering& l, const Op& op, const program::Attention& a) {
    KernelCall<dense::SinksGrad> call(l);
    call.Reads(call.dout, op.inputs[0]);
    call.Reads(call.out, op.inputs[4]);
    call.Reads(call.lse, op.inputs[5]);
    call.Reads(call.sinks, op.inputs[6]);
    call.Writes(call.dsinks, op.outputs[3]);
    call.MoreRows(call.lse_stride, op.inputs[0]);
    call.heads = a.heads;
    call.head_dim = a.head_dim;
    call.Rows(call.rows, op.inputs[0]);
    call.Owns(call.scratch, call.scratch_bytes, dense::SinksGradScratchBytes(call));
    return call.Push();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::Attention& a) {
    if (a.cached(op.inputs.size())) return LowerCached(l, op, a);
    if (!l.trains()) {
        return l.Unsupported("it has no KV cache; only a training program may lack one");
    }
    return a.chunk == 0 ? PushCausal<&Kernels::causal>(l, op, a)
                        : PushCausal<RunInChunks>(l, op, a);
}

Status Lower(Lowering& l, const Op& op, const program::AttentionGrad& a) {
    WEFT_TRY(a.forward.chunk == 0 ? PushCausalGrad<&Kernels::causal_grad>(l, op, a.forward)
                                  : PushCausalGrad<RunGradInChunks>(l, op, a.forward));
    return a.forward.sinks ? PushSinksGrad(l, op, a.forward) : Status();
}

}  // namespace weft::backend
