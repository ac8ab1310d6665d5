// Losses, their gradient, and the search for numbers that are not finite.
#include <algorithm>
#include <bit>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_train.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::ValueId;

constexpr int64_t kStatsOfRank = 3;

struct SoftmaxStatsArgs {
    uint64_t logits = 0, targets = 0, stats = 0;
    uint32_t rows = 0, cols = 0;
    int32_t first_row = 0;
};
struct CrossEntropyArgs {
    uint64_t stats = 0, targets = 0, losses = 0;
    uint32_t rows = 0, ranks = 0;
};
struct CrossEntropyGradArgs {
    uint64_t logits = 0, dloss = 0, stats = 0, targets = 0;
    uint32_t rows = 0, cols = 0, ranks = 0;
    int32_t first_row = 0;
};
struct FindNonFiniteArgs {
    uint64_t from = 0, found = 0, count = 0;
};
constexpr int64_t kMostFindGroups = 1024;

Result<uint32_t> StatsRanksOf(const Emitter& e, ValueId stats) {
    const int64_t cols = e.Cols(stats);
    if (cols > 0 && cols % kStatsOfRank == 0) return static_cast<uint32_t>(cols / kStatsOfRank);
    return MakeError(ErrorCode::kUnsupported, "{} has {} columns; expected {} per rank",
                     e.program().value(stats).name, cols, kStatsOfRank);
}

// Each row has a workgroup, and there are few rows: workgroups are as large as the device allows.
uint32_t StatsGroup(const Emitter& e) {
    constexpr uint32_t kMost = 1024;  // limit of reduce.glsl
    return std::min(std::bit_floor(e.gpu().most_invocations), kMost);
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::SoftmaxStats& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId logits = op.inputs[0], targets = op.inputs[1], stats = op.outputs[0];
    WEFT_TRY(CheckFloat32(e, stats));
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, logits));
    types.SetRows(e.Cols(logits));
    SoftmaxStatsArgs args;
    args.logits = e.Address(logits);
    args.targets = e.Address(targets);
    args.stats = e.Address(stats);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.cols = static_cast<uint32_t>(e.Cols(logits));
    args.first_row = static_cast<int32_t>(a.first_row);
    return e.Run("softmax_stats", {StatsGroup(e), types.packed(), types.wide()}, args,
                 {RowGroups(args.rows), 1, 1}, {e.All(logits), e.All(targets)}, {e.All(stats)});
}

Status Lower(Emitter& e, const Op& op, const program::CrossEntropy&) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId stats = op.inputs[0], targets = op.inputs[1], losses = op.outputs[0];
    WEFT_TRY(CheckFloat32(e, stats));
    WEFT_TRY(CheckFloat32(e, losses));
    CrossEntropyArgs args;
    WEFT_ASSIGN(args.ranks, StatsRanksOf(e, stats));
    args.stats = e.Address(stats);
    args.targets = e.Address(targets);
    args.losses = e.Address(losses);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, stats));
    return e.Run("cross_entropy", {kTrainGroup}, args,
                 {(args.rows + kTrainGroup - 1) / kTrainGroup, 1, 1},
                 {e.All(stats), e.All(targets)}, {e.All(losses)});
}

Status Lower(Emitter& e, const Op& op, const program::CrossEntropyGrad& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dloss = op.inputs[0], stats = op.inputs[1], targets = op.inputs[2];
    const ValueId logits = op.outputs[0];
    WEFT_TRY(CheckFloat32(e, dloss));
    WEFT_TRY(CheckFloat32(e, stats));
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, logits));
    types.SetRows(e.Cols(logits));
    CrossEntropyGradArgs args;
    WEFT_ASSIGN(args.ranks, StatsRanksOf(e, stats));
    args.logits = e.Address(logits);
    args.dloss = e.Address(dloss);
    args.stats = e.Address(stats);
    args.targets = e.Address(targets);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.cols = static_cast<uint32_t>(e.Cols(logits));
    args.first_row = static_cast<int32_t>(a.first_row);
    const int64_t pieces = (e.Cols(logits) + 4 * kTrainGroup - 1) / (4 * kTrainGroup);
    return e.Run("cross_entropy_grad", {kTrainGroup, types.packed(), types.wide()}, args,
                 {RowGroups(args.rows), pieces, 1},
                 {e.All(dloss), e.All(stats), e.All(targets), e.All(logits)}, {e.All(logits)});
}

Status LowerFindNonFinite(Emitter& e, ValueId value, Region to) {
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, value));
    FindNonFiniteArgs args;
    args.from = e.Address(value);
    args.count = static_cast<uint64_t>(CountOf(e, value));
    const int64_t groups = std::clamp<int64_t>(QuadGroups(CountOf(e, value)), 1, kMostFindGroups);
    WEFT_ASSIGN(const Region found,
                e.Scratch("not finite", static_cast<uint64_t>(groups) * sizeof(uint64_t)));
    args.found = found.address;
    WEFT_TRY(e.Run("find_non_finite", {kTrainGroup, types.packed(), types.wide()}, args,
                   {groups, 1, 1}, {e.All(value)}, {found}));
    const FindNonFiniteArgs end{found.address, to.address, static_cast<uint64_t>(groups)};
    return e.Run("find_non_finite_end", {kTrainGroup}, end, {1, 1, 1}, {found}, {to});
}

}  // namespace weft::backend::vulkan
