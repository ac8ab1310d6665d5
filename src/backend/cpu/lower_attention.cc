// Lowers attention: to cached keys in inference, and to the rows of the step in training.
#include "backend/cpu/lowering.h"

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
    if (a.sinks) call.Reads(args.sinks, op.inputs[3]);
    call.Owns(args.scratch, args.scratch_floats,
              l.kernels.attention_scratch(std::max(a.head_dim, a.ValueDim()), a.group));
    call.Writes(args.out, op.outputs[0]);
}

Status LowerCached(Lowering& l, const Op& op, const program::Attention& a) {
    if (l.trains()) return l.Unsupported("training has no KV cache");
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

// Fills in the heads, and one sequence with all rows, the longest possible, for the size of scratch
// memory.
Status FillCausal(const Lowering& l, const program::Attention& a, dense::CausalArgs& args,
                  kernels::Sequence& longest) {
    if (a.sinks) return l.Unsupported("no gradient of sinks is known");
    longest = {0, static_cast<int32_t>(l.options.max_tokens), 0, {}};
    args.sequences = {&longest, 1};
    SetHeads(args, a);
    args.kv_heads = a.kv_heads;
    args.head_dim = a.head_dim;
    args.compute = l.compute();
    return {};
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::Attention& a) {
    if (a.cached(op.inputs.size())) return LowerCached(l, op, a);
    if (!l.trains()) {
        return l.Unsupported("it has no KV cache; only a training program may lack one");
    }
    KernelCall<&Kernels::causal> call(l);
    kernels::Sequence longest;
    WEFT_TRY(FillCausal(l, a, call, longest));
    call.Operands(call.q, call.k, call.v, call.out);
    // (If no earlier op is trained, no gradient passes through attention, and it has no lse.)
    if (op.outputs.size() == 2) {
        call.Writes(call.lse, op.outputs[1]);
        call.MoreRows(call.lse_stride, op.outputs[0]);
    }
    call.Owns(call.scratch, call.scratch_bytes, l.kernels.causal_scratch_bytes(call));
    call.Binds(call.sequences, Bound::kSequences);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::AttentionGrad& a) {
    KernelCall<&Kernels::causal_grad> call(l);
    dense::CausalArgs& forward = call.forward;
    kernels::Sequence longest;
    WEFT_TRY(FillCausal(l, a.forward, forward, longest));
    call.Operands(call.dout, forward.q, forward.k, forward.v, forward.out, forward.lse, call.dq,
                  call.dk, call.dv);
    call.MoreRows(forward.lse_stride, op.inputs[0]);
    call.Owns(call.scratch, call.scratch_bytes, l.kernels.causal_grad_scratch_bytes(call));
    call.Binds(forward.sequences, Bound::kSequences);
    return call.Push();
}

}  // namespace weft::backend
