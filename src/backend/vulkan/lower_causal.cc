// Attention of training and its gradient: over the rows of the step's sequences, without a cache
// (causal.comp, causal_grad_q.comp, causal_grad_kv.comp).
//
// All matrices of an op have one type. Operands are widened to float32 and never rounded, for any
// Arithmetic::compute. lse is [heads, rows].
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_parts.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::OpName;
using program::ValueId;

// Constants of causal_tiles.glsl.
constexpr uint32_t kCausalGroup = 128;
constexpr int64_t kMostCausalDims = 256, kOtherRows = 64;
constexpr int64_t kStagedQuads = 544;  // of 16 bytes each, in shared memory

struct CausalShaderArgs {
    uint64_t q = 0, k = 0, v = 0, out = 0, dout = 0, lse = 0, sums = 0;
    uint64_t first = 0, second = 0;
    uint64_t sequences = 0, blocks = 0;
    uint32_t heads = 0, first_head = 0, group = 1, first_kv_head = 0, kv_heads = 0;
    uint32_t rows = 0, block_count = 0, window = 0;
    float scale = 1, soft_cap = 0;
};

// The number of a type in element.glsl.
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
    switch (dtype) {
        case DType::kF32: return 0;
        case DType::kBF16: return 1;
        case DType::kF16: return 2;
        default: break;
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} is of type {}; the GPU supports f32, bf16 or f16", OpName(op.kind()),
                     e.program().value(*matrices.begin()).name, Info(dtype).name);
}

Status CheckHeads(const Op& op, const program::Attention& a) {
    if (a.sinks) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the GPU has no kernel for attention with sinks and without a cache",
                         OpName(op.kind()));
    }
    if (a.head_dim % 8 == 0 && a.head_dim <= kMostCausalDims) return {};
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: heads of {} dims; without a cache the GPU supports multiples of 8 up to {}",
        OpName(op.kind()), a.head_dim, kMostCausalDims);
}

class CausalLowering {
  public:
    CausalLowering(Emitter& e, const program::Attention& a, uint32_t type)
        : e_(e), head_dim_(a.head_dim), type_(type) {
        args.sequences = e.tables().sequences;
        args.blocks = e.tables().blocks;
        args.heads = static_cast<uint32_t>(a.heads);
        args.first_head = static_cast<uint32_t>(a.first_head);
        args.group = static_cast<uint32_t>(a.group);
        args.first_kv_head = static_cast<uint32_t>(a.first_kv_head);
        args.kv_heads = static_cast<uint32_t>(a.kv_heads);
        args.rows = static_cast<uint32_t>(e.shape().rows);
        args.block_count = static_cast<uint32_t>(e.shape().blocks);
        // A longer window hides nothing. So the kernels can add the window to a row without
        // overflow.
        args.window = static_cast<uint32_t>(a.window <= e.shape().rows ? a.window : 0);
        args.scale = a.scale;
        args.soft_cap = a.soft_cap;
    }

    // own: rows per workgroup.
    Status Run(std::string_view shader, int64_t own, int64_t heads, std::vector<Region> reads,
               std::vector<Region> writes) {
        static_assert(kBlockRows <= 32 && 32 % kBlockRows == 0);  // a tile begins with a block
        const int64_t quads = head_dim_ / 4;
        int64_t slice = kOtherRows;
        while (slice * quads > kStagedQuads) slice /= 2;
        return e_.Run(
            shader,
            {kCausalGroup, type_, static_cast<uint32_t>(head_dim_), static_cast<uint32_t>(own),
             static_cast<uint32_t>(slice), args.soft_cap != 0 ? 1u : 0u},
            args, {1, heads, e_.shape().blocks}, std::move(reads), std::move(writes), 0,
            Parts::kAlongZ);
    }

    CausalShaderArgs args;

  private:
    Emitter& e_;
    int64_t head_dim_;
    uint32_t type_;
};

}  // namespace

Status LowerCausal(Emitter& e, const Op& op, const program::Attention& a) {
    const ValueId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2], out = op.outputs[0];
    WEFT_TRY(CheckHeads(op, a));
    WEFT_ASSIGN(const uint32_t type, MatrixType(e, op, {q, k, v, out}));
    CausalLowering lowering(e, a, type);
    lowering.args.q = e.Address(q);
    lowering.args.k = e.Address(k);
    lowering.args.v = e.Address(v);
    lowering.args.first = e.Address(out);
    std::vector<Region> writes = {e.All(out)};
    if (op.outputs.size() == 2) {
        lowering.args.lse = e.Address(op.outputs[1]);
        writes.push_back(e.All(op.outputs[1]));
    }
    return lowering.Run("causal", a.head_dim <= 128 ? 64 : 32, a.heads,
                        {e.All(q), e.All(k), e.All(v)}, std::move(writes));
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
    CausalLowering lowering(e, a, type);
    CausalShaderArgs& args = lowering.args;
    args.q = e.Address(q), args.k = e.Address(k), args.v = e.Address(v);
    args.out = e.Address(out), args.dout = e.Address(dout);
    args.lse = e.Address(lse), args.sums = sums.address;
    args.first = e.Address(dq);
    std::vector<Region> reads = {e.All(q), e.All(k), e.All(v), e.All(dout), e.All(lse)};
    std::vector<Region> with_out = reads;
    with_out.push_back(e.All(out));
    WEFT_TRY(lowering.Run("causal_grad_q", a.head_dim <= 128 ? 64 : 32, a.heads,
                          std::move(with_out), {e.All(dq), sums}));
    args.first = e.Address(dk), args.second = e.Address(dv);
    reads.push_back(sums);
    return lowering.Run("causal_grad_kv", a.head_dim <= 64 ? 64 : 32, a.kv_heads, std::move(reads),
                        {e.All(dk), e.All(dv)});
}

}  // namespace weft::backend::vulkan
