// Ops with recurrent state in inference: the causal convolution, the gated delta rule and SSD, and
// the means of windows (recurrent_grad.cc: training). The rows of a sequence are computed one after
// another. A long prompt needs several dispatches, which pass the state in the sequence's final
// slot.
#include <algorithm>
#include <cstdint>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

// Rows of the step per dispatch.
constexpr int64_t kRowsEach = 512;
// Constants of the shaders.
constexpr int64_t kConvGroup = 128;
constexpr int64_t kDeltaColumns = 16, kDeltaGroup = 128;

struct ConvArgs {
    uint64_t x = 0, weight = 0, bias = 0, state = 0, y = 0, inner = 0, outer = 0;
    uint64_t states = 0, writes = 0;
    uint32_t cols = 0, slot_floats = 0, first_row = 0, rows = 0;
};

struct DeltaArgs {
    uint64_t q = 0, k = 0, v = 0, decay = 0, beta = 0, a = 0, dt = 0, state = 0, y = 0;
    uint64_t states = 0, writes = 0;
    uint32_t heads_and_keys = 0, cols = 0, first_heads = 0, group_and_cycle = 0;
    float query_scale = 1, key_scale = 1, floor = 0;
    uint32_t first_row = 0, rows = 0;
};

struct PoolArgs {
    uint64_t values = 0, gates = 0, positions = 0, bias = 0, state = 0, y = 0;
    uint64_t states = 0, writes = 0;
    uint32_t width = 0, window = 0, first_row = 0, rows = 0;
};

// Calls run(), which emits a dispatch for args.first_row and args.rows, for all rows of the step.
template <typename Args, typename Run>
Status ForPieces(const Emitter& e, Args& args, const Run& run) {
    for (int64_t first = 0; first < e.shape().rows; first += kRowsEach) {
        args.first_row = static_cast<uint32_t>(first);
        args.rows = static_cast<uint32_t>(std::min(kRowsEach, e.shape().rows - first));
        WEFT_TRY(run());
    }
    return {};
}

}  // namespace

Status CheckTaps(int64_t taps) {
    constexpr int64_t kMostTaps = 16;
    if (taps <= kMostTaps) return {};
    return MakeError(ErrorCode::kUnsupported, "a convolution of {} taps; at most {} are supported",
                     taps, kMostTaps);
}

Status CheckRule(const program::DeltaRule& a, int64_t heads, int64_t dims) {
    constexpr int64_t kMostDims = 1024;
    const int64_t most = std::max({heads, a.key_heads, a.first_head, a.group, a.cycle});
    if (dims <= kMostDims && most < 1 << 16) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "a delta rule over keys of {} dims and {} heads; at most {} and {} are "
                     "supported",
                     dims, most, kMostDims, (1 << 16) - 1);
}

Status Lower(Emitter& e, const Op& op, const program::CausalConv& a) {
    if (a.stateless) return LowerTrained(e, op, a);
    const ValueId y = op.outputs[0];
    const int64_t taps = e.Cols(op.inputs[1]);
    WEFT_TRY(CheckTaps(taps));
    Operands io(e);
    ConvArgs args;
    args.x = io.Reads(op.inputs[0]);
    args.weight = io.Reads(op.inputs[1]);
    if (a.biased(op.inputs.size())) args.bias = io.Reads(op.inputs[2]);
    if (a.gated) {
        args.inner = io.Reads(op.inputs.end()[-3]);
        args.outer = io.Reads(op.inputs.end()[-2]);
    }
    args.state = io.Adds(op.inputs.back());
    args.y = io.Writes(y);
    args.states = e.tables().states;
    args.writes = e.tables().state_writes;
    args.cols = static_cast<uint32_t>(e.Cols(y));
    args.slot_floats = static_cast<uint32_t>((taps - 1) * e.Cols(y));
    return ForPieces(e, args, [&] {
        return io.Run("causal_conv", {kConvGroup, taps, a.silu, a.gated}, args,
                      {CeilDiv(e.Cols(y), kConvGroup), e.shape().sequences, 1});
    });
}

Status Lower(Emitter& e, const Op& op, const program::PoolWindows& a) {
    const ValueId bias = op.inputs[3], y = op.outputs[0];
    Operands io(e);
    PoolArgs args;
    args.values = io.Reads(op.inputs[0]);
    args.gates = io.Reads(op.inputs[1]);
    args.positions = e.tables().positions;
    args.bias = io.Reads(bias);
    args.state = io.Adds(op.inputs[4]);
    args.y = io.Writes(y);
    args.states = e.tables().states;
    args.writes = e.tables().state_writes;
    args.width = static_cast<uint32_t>(e.Cols(y));
    args.window = static_cast<uint32_t>(e.program().value(bias).shape[0]);
    return ForPieces(e, args, [&] {
        return io.Run("pool_windows", {kConvGroup, a.overlaps}, args,
                      {CeilDiv(e.Cols(y), kConvGroup), e.shape().sequences, 1});
    });
}

Status Lower(Emitter& e, const Op& op, const program::DeltaRule& a) {
    if (a.stateless) return LowerTrained(e, op, a);
    const ValueId state = op.inputs[7];
    const program::Shape& shape = e.program().value(state).shape;
    const int64_t heads = shape[0], dims = shape[1], cols = shape[2];
    WEFT_TRY(CheckRule(a, heads, dims));
    DeltaArgs args;
    // In SSD `skip`, the sixth input, replaces beta.
    uint64_t* const rule[] = {&args.q,    &args.k, &args.v,  &args.decay,
                              &args.beta, &args.a, &args.dt, &args.state};
    uint64_t* const ssd[] = {&args.q, &args.k,  &args.v,    &args.decay,
                             &args.a, &args.dt, &args.beta, &args.state};
    Operands io(e);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        *(a.ssd ? ssd : rule)[i] = i == 7 ? io.Adds(state) : io.Reads(op.inputs[i]);
    }
    args.y = io.Writes(op.outputs[0]);
    args.states = e.tables().states;
    args.writes = e.tables().state_writes;
    args.heads_and_keys = Both(heads, a.key_heads);
    args.cols = static_cast<uint32_t>(cols);
    args.first_heads = Both(a.first_head, a.first_key_head);
    args.group_and_cycle = Both(a.group, a.cycle);
    args.query_scale = a.query_scale;
    args.key_scale = a.key_scale;
    args.floor = a.floor;
    return ForPieces(e, args, [&] {
        return io.Run("delta_rule", {kDeltaGroup, dims, a.by_channel, a.ssd}, args,
                      {CeilDiv(cols, kDeltaColumns), heads, e.shape().sequences});
    });
}

}  // namespace weft::backend::on_gpu
