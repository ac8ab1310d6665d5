// Ops of a mixture of experts other than products: the gradient of the choice, statistics of the
// router, and gates of rows.
#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_parts.h"
#include "backend/vulkan/lower_train.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::ValueId;

struct RouterRowsArgs {
    uint64_t logits = 0, y = 0, dsums = 0;
    uint32_t rows = 0, experts = 0;
};
struct RouteGradArgs {
    uint64_t logits = 0, y = 0, dweights = 0, ids = 0;
    uint32_t rows = 0, experts = 0, used = 0, sigmoid = 0, renormalise = 0;
    float scale = 1;
};
struct RouterLoadArgs {
    uint64_t load = 0, ids = 0, dloss = 0, y = 0;
    uint32_t count = 0, experts = 0, used = 0;
};
struct GateRowsGradArgs {
    uint64_t dy = 0, x = 0, gate = 0, dx = 0, dgate = 0;
    uint32_t rows = 0, cols = 0;
};

Status CheckAllFloat32(const Emitter& e, std::initializer_list<ValueId> ids) {
    for (const ValueId id : ids) WEFT_TRY(CheckFloat32(e, id));
    return {};
}

RouterRowsArgs RouterRowsOf(const Emitter& e, ValueId logits, uint64_t y) {
    RouterRowsArgs args;
    args.logits = e.Address(logits);
    args.y = y;
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.experts = static_cast<uint32_t>(e.Cols(logits));
    return args;
}

// Adds the counts of `ids` to those of `load`, into y.
Status CountIds(Emitter& e, ValueId ids, ValueId load, ValueId y) {
    RouterLoadArgs args;
    std::vector<Region> reads = {e.All(ids)};
    if (load != program::kNoValue) {
        args.load = e.Address(load);
        reads.push_back(e.All(load));
    }
    args.ids = e.Address(ids);
    args.y = e.Address(y);
    args.count = static_cast<uint32_t>(CountOf(e, ids));
    args.experts = static_cast<uint32_t>(e.Cols(y));
    return e.Run("router_counts", {kTrainGroup}, args, {e.Cols(y), 1, 1}, std::move(reads),
                 {e.All(y)});
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::RouteGrad& grad) {
    WEFT_TRY(CheckCounts(e, op));
    const program::Route& a = grad.forward;
    if (a.factors) {
        return MakeError(ErrorCode::kUnsupported,
                         "a choice of experts with factors has no gradient");
    }
    const ValueId dweights = op.inputs[0], logits = op.inputs[1], ids = op.inputs[2];
    const ValueId y = op.outputs[0];
    WEFT_TRY(CheckAllFloat32(e, {dweights, logits, y}));
    RouteGradArgs args;
    args.logits = e.Address(logits);
    args.y = e.Address(y);
    args.dweights = e.Address(dweights);
    args.ids = e.Address(ids);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.experts = static_cast<uint32_t>(e.Cols(logits));
    args.used = static_cast<uint32_t>(e.Cols(ids));
    args.sigmoid = a.score == program::GateScore::kSigmoid ? 1 : 0;
    args.renormalise = a.renormalise ? 1 : 0;
    args.scale = a.scale;
    return e.Run("route_grad", {NormGroup(e.Cols(logits))}, args, {RowGroups(args.rows), 1, 1},
                 {e.All(dweights), e.All(logits), e.All(ids)}, {e.All(y)});
}

// Writes the scores of all rows to scratch memory, then adds them by column.
Status Lower(Emitter& e, const Op& op, const program::RouterLoad&) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId logits = op.inputs[0], ids = op.inputs[1], y = op.outputs[0];
    const ValueId load = op.inputs.size() > 2 ? op.inputs[2] : program::kNoValue;
    WEFT_TRY(CheckAllFloat32(e, {logits, y}));
    if (load != program::kNoValue) WEFT_TRY(CheckFloat32(e, load));
    const int64_t rows = FlatRowsOf(e, logits), experts = e.Cols(logits);
    const auto bytes = static_cast<uint64_t>(rows * experts) * sizeof(float);
    WEFT_ASSIGN(const Region scores, e.Scratch("router scores", bytes));
    const RouterRowsArgs args = RouterRowsOf(e, logits, scores.address);
    WEFT_TRY(e.Run("router_scores", {NormGroup(experts)}, args, {RowGroups(rows), 1, 1},
                   {e.All(logits)}, {scores}));
    ColumnSums sums;
    sums.dy = scores.address;
    sums.wide = experts % 4 == 0 ? 1 : 0;
    sums.rows = rows;
    sums.cols = experts;
    sums.reads = {scores};
    WEFT_ASSIGN(const BlockSums blocks, SumBlocks(e, sums));
    const uint64_t behind_counts = static_cast<uint64_t>(experts) * sizeof(float);
    SumsEnd end{0, e.Address(y) + behind_counts, 0, experts, {}, {e.All(y)}};
    if (load != program::kNoValue) {
        end.from = e.Address(load) + behind_counts;
        end.reads = {e.All(load)};
    }
    WEFT_TRY(AddBlocks(e, blocks, std::move(end)));
    return CountIds(e, ids, load, y);
}

Status Lower(Emitter& e, const Op& op, const program::RouterLoadGrad&) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dload = op.inputs[0], logits = op.inputs[1], y = op.outputs[0];
    WEFT_TRY(CheckAllFloat32(e, {dload, logits, y}));
    RouterRowsArgs args = RouterRowsOf(e, logits, e.Address(y));
    args.dsums = e.Address(dload) + args.experts * sizeof(float);
    return e.Run("router_load_grad", {NormGroup(args.experts)}, args, {RowGroups(args.rows), 1, 1},
                 {e.All(dload), e.All(logits)}, {e.All(y)});
}

Status Lower(Emitter& e, const Op& op, const program::LoadBalance& a) {
    const ValueId load = op.inputs[0], loss = op.outputs[0];
    WEFT_TRY(CheckAllFloat32(e, {load, loss}));
    RouterLoadArgs args;
    args.load = e.Address(load);
    args.y = e.Address(loss);
    args.experts = static_cast<uint32_t>(e.Cols(load));
    args.used = static_cast<uint32_t>(a.used);
    return e.Run("load_balance", {kTrainGroup}, args, {1, 1, 1}, {e.All(load)}, {e.All(loss)});
}

Status Lower(Emitter& e, const Op& op, const program::LoadBalanceGrad& a) {
    const ValueId dloss = op.inputs[0], load = op.inputs[1], dload = op.outputs[0];
    WEFT_TRY(CheckAllFloat32(e, {dloss, load, dload}));
    RouterLoadArgs args;
    args.load = e.Address(load);
    args.dloss = e.Address(dloss);
    args.y = e.Address(dload);
    args.experts = static_cast<uint32_t>(e.Cols(load));
    args.used = static_cast<uint32_t>(a.forward.used);
    return e.Run("load_balance_grad", {kTrainGroup}, args, {1, 1, 1}, {e.All(dloss), e.All(load)},
                 {e.All(dload)});
}

Status Lower(Emitter& e, const Op& op, const program::GateRowsGrad&) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dy = op.inputs[0], x = op.inputs[1], gate = op.inputs[2];
    const ValueId dx = op.outputs[0], dgate = op.outputs[1];
    WEFT_TRY(CheckAllFloat32(e, {gate, dgate}));
    ElementTypes types(e);
    types.SetRows(e.Cols(dy));
    WEFT_TRY(types.Set(0, dy));
    WEFT_TRY(types.Set(1, x));
    WEFT_TRY(types.Set(2, dx));
    GateRowsGradArgs args;
    args.dy = e.Address(dy);
    args.x = e.Address(x);
    args.gate = e.Address(gate);
    args.dx = e.Address(dx);
    args.dgate = e.Address(dgate);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, dy));
    args.cols = static_cast<uint32_t>(e.Cols(dy));
    return e.Run("gate_rows_grad", {NormGroup(e.Cols(dy)), types.packed(), types.wide()}, args,
                 {RowGroups(args.rows), 1, 1}, {e.All(dy), e.All(x), e.All(gate)},
                 {e.All(dx), e.All(dgate)});
}

}  // namespace weft::backend::vulkan
