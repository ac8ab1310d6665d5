// Attention of training and its gradient: over the rows of the step's sequences, without a cache
// (causal.comp, causal_grad_q.comp, causal_grad_kv.comp, sinks_grad.comp).
//
// All matrices of an op have one type. Operands are widened to float32 and never rounded, for any
// Arithmetic::compute. lse is [heads, rows].
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::OpName;
using program::ValueId;

// Constants of causal_tiles.glsl.
constexpr uint32_t kCausalGroup = 128;
constexpr int64_t kMostCausalDims = 256, kOtherRows = 64;
constexpr int64_t kStagedQuads = 544;  // of 16 bytes each, in shared memory

struct CausalArgs {
    uint64_t q = 0, k = 0, v = 0, out = 0, dout = 0, lse = 0, sums = 0;
    uint64_t first = 0, second = 0;
    uint64_t sequences = 0, blocks = 0, slopes = 0;
    uint32_t heads_and_kv = 0, first_heads = 0, group = 1;
    uint32_t rows = 0, block_count = 0, window = 0;
    float scale = 1, soft_cap = 0;
};
struct SinksGradArgs {
    uint64_t sinks = 0, lse = 0, sums = 0, dsinks = 0;
    uint32_t heads = 0, rows = 0;
};

// The type of these matrices (element.glsl).
Result<uint32_t> MatrixType(const Emitter& e, const Op& op,
                            std::initializer_list<ValueId> matrices) {
    const DType dtype = e.program().value(*matrices.begin()).dtype;
    for (const ValueId id : matrices) {
        const program::Value& value = e.program().value(id);
        if (value.dtype == dtype) continue;
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: {} is of type {} and {} of type {}; the GPU needs matrices of one type",
            OpName(op.kind()), e.program().value(*matrices.begin()).name, Info(dtype).name,
            value.name, Info(value.dtype).name);
    }
    return ElementType(dtype);
}

Status CheckHeads(const Op& op, const program::Attention& a) {
    if (a.chunk != 0 && a.window != 0) return TrainsOnCpuOnly(op, "in chunks with a window");
    if (a.head_dim % 8 == 0 && a.head_dim <= kMostCausalDims) return {};
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: heads of {} dims; without a cache the GPU supports multiples of 8 up to {}",
        OpName(op.kind()), a.head_dim, kMostCausalDims);
}

// All arguments but the matrices.
Result<CausalArgs> ArgsOf(Emitter& e, const program::Attention& a) {
    CausalArgs args;
    if (!a.slopes.empty()) {
        WEFT_ASSIGN(const Region slopes, PlaceSlopes(e, a.slopes));
        args.slopes = slopes.address;
    }
    args.sequences = e.tables().sequences;
    args.blocks = e.tables().blocks;
    args.heads_and_kv = Both(a.heads, a.kv_heads);
    args.first_heads = Both(a.first_head, a.first_kv_head);
    args.group = static_cast<uint32_t>(a.group);
    args.rows = static_cast<uint32_t>(e.shape().rows);
    args.block_count = static_cast<uint32_t>(e.shape().blocks);
    // A window or chunk of more rows than the step has hides no keys and becomes 0 (none). So
    // kernels can add it to a row without overflow.
    const int64_t window = std::max(a.window, a.chunk);
    args.window = static_cast<uint32_t>(window <= e.shape().rows ? window : 0);
    args.scale = a.scale;
    args.soft_cap = a.soft_cap;
    return args;
}

// own: rows per workgroup. heads: number of workgroups along y.
Status RunCausal(const Operands& io, std::string_view shader, const program::Attention& a,
                 uint32_t type, int64_t own, int64_t heads, const CausalArgs& args) {
    static_assert(kBlockRows <= 32 && 32 % kBlockRows == 0);  // a tile begins with a block
    int64_t slice = kOtherRows;
    while (slice * (a.head_dim / 4) > kStagedQuads) slice /= 2;
    return io.Run(shader,
                  {kCausalGroup, type, a.head_dim, own, slice, args.soft_cap != 0, args.slopes != 0,
                   a.chunk != 0 && args.window != 0},
                  args, {1, heads, args.block_count}, 0, Parts::kAlongZ);
}

// sums: the sums of dout * out, [heads, rows].
Status AddSinksGrad(Emitter& e, const Op& op, const program::Attention& a, const Region& sums) {
    Operands io(e);
    SinksGradArgs args;
    args.sinks = io.Reads(op.inputs[6]);
    args.lse = io.Reads(op.inputs[5]);
    args.sums = io.Reads(sums);
    args.dsinks = io.Writes(op.outputs[3]);
    args.heads = static_cast<uint32_t>(a.heads);
    args.rows = static_cast<uint32_t>(e.shape().rows);
    return io.Run("sinks_grad", {kWalkGroup}, args, {WalkGroups(CountOf(e, op.outputs[3])), 1, 1});
}

int64_t RowsOfQueries(const program::Attention& a) {
    return a.head_dim <= 128 ? 64 : 32;
}

}  // namespace

Status LowerWithoutCache(Emitter& e, const Op& op, const program::Attention& a) {
    const ValueId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2], out = op.outputs[0];
    WEFT_TRY(CheckHeads(op, a));
    WEFT_ASSIGN(const uint32_t type, MatrixType(e, op, {q, k, v, out}));
    Operands io(e);
    WEFT_ASSIGN(CausalArgs args, ArgsOf(e, a));
    args.q = io.Reads(q, 0);
    args.k = io.Reads(k, 0);
    args.v = io.Reads(v, 0);
    if (a.sinks) args.sums = io.Reads(op.inputs[3]);
    args.first = io.Writes(out, 0);
    if (op.outputs.size() == 2) args.lse = io.Writes(op.outputs[1]);
    return RunCausal(io, "causal", a, type, RowsOfQueries(a), a.heads, args);
}

Status Lower(Emitter& e, const Op& op, const program::AttentionGrad& grad) {
    const program::Attention& a = grad.forward;
    const ValueId dout = op.inputs[0], q = op.inputs[1], k = op.inputs[2], v = op.inputs[3];
    const ValueId out = op.inputs[4], lse = op.inputs[5];
    const ValueId dq = op.outputs[0], dk = op.outputs[1], dv = op.outputs[2];
    WEFT_TRY(CheckHeads(op, a));
    WEFT_ASSIGN(const uint32_t type, MatrixType(e, op, {q, dout, k, v, out, dq, dk, dv}));
    WEFT_ASSIGN(const Region sums,
                e.Scratch("attention gradient", static_cast<uint64_t>(a.heads) * sizeof(float) *
                                                    static_cast<uint64_t>(e.shape().rows)));
    Operands q_io(e), kv_io(e);
    WEFT_ASSIGN(CausalArgs args, ArgsOf(e, a));
    for (Operands* io : {&q_io, &kv_io}) {
        args.q = io->Reads(q, 0), args.k = io->Reads(k, 0), args.v = io->Reads(v, 0);
        args.dout = io->Reads(dout, 0), args.lse = io->Reads(lse);
    }
    args.out = q_io.Reads(out, 0);
    args.first = q_io.Writes(dq, 0);
    args.sums = q_io.Writes(sums);
    WEFT_TRY(RunCausal(q_io, "causal_grad_q", a, type, RowsOfQueries(a), a.heads, args));
    kv_io.Reads(sums);
    args.first = kv_io.Writes(dk, 0);
    args.second = kv_io.Writes(dv, 0);
    WEFT_TRY(
        RunCausal(kv_io, "causal_grad_kv", a, type, a.head_dim <= 64 ? 64 : 32, a.kv_heads, args));
    return a.sinks ? AddSinksGrad(e, op, a, sums) : Status();
}

}  // namespace weft::backend::on_gpu
