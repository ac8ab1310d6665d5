// Ops of a router in training: the gradient of the choice of experts, and the experts' load.
#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

struct RouterRowsArgs {
    uint64_t logits = 0, y = 0, dsums = 0;
    uint32_t rows = 0, experts = 0;
};
struct RouteGradArgs {
    uint64_t logits = 0, y = 0, dweights = 0, ids = 0, factors = 0;
    uint32_t rows = 0, experts = 0, used = 0, sigmoid = 0, renormalise = 0;
    float scale = 1;
};
struct RouterLoadArgs {
    uint64_t load = 0, ids = 0, dloss = 0, y = 0;
    uint32_t count = 0, experts = 0, used = 0;
};

RouterRowsArgs RouterRowsOf(const Emitter& e, Operands& io, ValueId logits, uint64_t y) {
    RouterRowsArgs args;
    args.logits = io.Reads(logits);
    args.y = y;
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.experts = static_cast<uint32_t>(e.Cols(logits));
    return args;
}

// Adds the counts of `ids` to the counts of `load`, into y.
Status CountIds(Emitter& e, ValueId ids, ValueId load, ValueId y) {
    Operands io(e);
    RouterLoadArgs args;
    args.load = io.Reads(load);
    args.ids = io.Reads(ids);
    args.y = io.Writes(y);
    args.count = static_cast<uint32_t>(CountOf(e, ids));
    args.experts = static_cast<uint32_t>(e.Cols(y));
    return io.Run("router_counts", {kWalkGroup}, args, {e.Cols(y), 1, 1});
}

// All arguments but the results and the factors.
RouteGradArgs RouteGradArgsOf(const Emitter& e, const Op& op, const program::Route& a,
                              Operands& io) {
    const ValueId logits = op.inputs[1], ids = op.inputs[2];
    RouteGradArgs args;
    args.logits = io.Reads(logits);
    args.dweights = io.Reads(op.inputs[0]);
    args.ids = io.Reads(ids);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.experts = static_cast<uint32_t>(e.Cols(logits));
    args.used = static_cast<uint32_t>(e.Cols(ids));
    args.sigmoid = a.score == program::GateScore::kSigmoid ? 1 : 0;
    args.renormalise = a.renormalise ? 1 : 0;
    args.scale = a.scale;
    return args;
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::RouteGrad& grad) {
    Operands io(e);
    RouteGradArgs args = RouteGradArgsOf(e, op, grad.forward, io);
    if (grad.forward.factors) args.factors = io.Reads(op.inputs[3]);
    args.y = io.Writes(op.outputs[0]);
    return io.Run("route_grad", {NormGroup(args.experts)}, args, {RowGroups(args.rows), 1, 1});
}

// Writes the addends of all rows to scratch memory, then adds them by column.
Status Lower(Emitter& e, const Op& op, const program::RouteFactorsGrad& grad) {
    const ValueId dfactors = op.outputs[0];
    Operands row_io(e), sum_io(e), end_io(e);
    RouteGradArgs args = RouteGradArgsOf(e, op, grad.forward, row_io);
    if (args.rows == 0) return {};
    const auto bytes = uint64_t{args.rows} * args.experts * sizeof(float);
    WEFT_ASSIGN(const Region addends, e.Scratch("router scores", bytes));
    args.y = row_io.Writes(addends);
    WEFT_TRY(row_io.Run("route_factors_grad", {NormGroup(args.experts)}, args,
                        {RowGroups(args.rows), 1, 1}));
    WEFT_ASSIGN(const BlockSums blocks,
                SumBlocks(e, {args.rows, args.experts, sum_io.Reads(addends)}, sum_io));
    const uint64_t from = end_io.Reads(dfactors, 0), to = end_io.Writes(dfactors, 1);
    return AddBlocks(blocks, end_io, from, to, args.experts);
}

// Writes the scores of all rows to scratch memory, then adds them by column.
Status Lower(Emitter& e, const Op& op, const program::RouterLoad&) {
    const ValueId logits = op.inputs[0], ids = op.inputs[1], y = op.outputs[0];
    const ValueId load = op.inputs.size() > 2 ? op.inputs[2] : program::kNoValue;
    const int64_t rows = FlatRowsOf(e, logits), experts = e.Cols(logits);
    const auto bytes = static_cast<uint64_t>(rows * experts) * sizeof(float);
    WEFT_ASSIGN(const Region scores, e.Scratch("router scores", bytes));
    Operands score_io(e), sum_io(e), end_io(e);
    const RouterRowsArgs args = RouterRowsOf(e, score_io, logits, score_io.Writes(scores));
    WEFT_TRY(score_io.Run("router_scores", {NormGroup(experts)}, args, {RowGroups(rows), 1, 1}));
    WEFT_ASSIGN(const BlockSums blocks,
                SumBlocks(e, {rows, experts, sum_io.Reads(scores)}, sum_io));
    const uint64_t behind_counts = static_cast<uint64_t>(experts) * sizeof(float);
    const uint64_t from = load == program::kNoValue ? 0 : end_io.Reads(load) + behind_counts;
    WEFT_TRY(AddBlocks(blocks, end_io, from, end_io.Writes(y) + behind_counts, experts));
    return CountIds(e, ids, load, y);
}

Status Lower(Emitter& e, const Op& op, const program::RouterLoadGrad&) {
    Operands io(e);
    RouterRowsArgs args = RouterRowsOf(e, io, op.inputs[1], io.Writes(op.outputs[0]));
    args.dsums = io.Reads(op.inputs[0]) + args.experts * sizeof(float);
    return io.Run("router_load_grad", {NormGroup(args.experts)}, args,
                  {RowGroups(args.rows), 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::LoadBalance& a) {
    const ValueId load = op.inputs[0];
    Operands io(e);
    RouterLoadArgs args;
    args.load = io.Reads(load);
    args.y = io.Writes(op.outputs[0]);
    args.experts = static_cast<uint32_t>(e.Cols(load));
    args.used = static_cast<uint32_t>(a.used);
    return io.Run("load_balance", {kWalkGroup}, args, {1, 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::LoadBalanceGrad& a) {
    const ValueId load = op.inputs[1];
    Operands io(e);
    RouterLoadArgs args;
    args.load = io.Reads(load);
    args.dloss = io.Reads(op.inputs[0]);
    args.y = io.Writes(op.outputs[0]);
    args.experts = static_cast<uint32_t>(e.Cols(load));
    args.used = static_cast<uint32_t>(a.forward.used);
    return io.Run("load_balance_grad", {kWalkGroup}, args, {1, 1, 1});
}

}  // namespace weft::backend::on_gpu
