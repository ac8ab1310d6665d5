// Losses and their gradient.
#include <bit>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

struct SoftmaxStatsArgs {
    uint64_t logits = 0, targets = 0, stats = 0;
    uint32_t rows = 0, cols = 0;
    int32_t first_row = 0;
    uint32_t each = 0;
};
// (src/shaders/stats.glsl)
struct TermsArgs {
    uint32_t ranks = 0, each = 0;
    float smoothing = 0, share = 0, z_loss = 0;
};
struct CrossEntropyArgs {
    uint64_t stats = 0, targets = 0, losses = 0, hits = 0;
    TermsArgs terms;
    uint32_t rows = 0;
};
struct CrossEntropyGradArgs {
    uint64_t logits = 0, dloss = 0, stats = 0, targets = 0;
    TermsArgs terms;
    uint32_t rows = 0, cols = 0;
    int32_t first_row = 0;
};
Result<TermsArgs> TermsOf(const Emitter& e, const LossTerms& terms, ValueId stats) {
    const int64_t cols = e.Cols(stats), each = terms.stats();
    if (cols > 0 && cols % each == 0) {
        return TermsArgs{static_cast<uint32_t>(cols / each), static_cast<uint32_t>(each),
                         terms.smoothing, terms.share(), terms.z_loss};
    }
    return MakeError(ErrorCode::kUnsupported, "{} has {} columns; expected {} per rank",
                     e.program().value(stats).name, cols, each);
}

// Each row has a workgroup, and there are few rows: workgroups are as large as the device allows.
uint32_t StatsGroup(const Emitter& e) {
    constexpr uint32_t kMost = 1024;  // limit of reduce.glsl
    return std::min(std::bit_floor(e.gpu().most_invocations), kMost);
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::SoftmaxStats& a) {
    const ValueId logits = op.inputs[0];
    Operands io(e);
    io.SetRows(e.Cols(logits));
    SoftmaxStatsArgs args;
    args.logits = io.Reads(logits, 0);
    args.targets = io.Reads(op.inputs[1]);
    args.stats = io.Writes(op.outputs[0]);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.cols = static_cast<uint32_t>(e.Cols(logits));
    args.first_row = static_cast<int32_t>(a.first_row);
    args.each = a.sums ? 4 : 3;
    return io.Run("softmax_stats", {StatsGroup(e), io.types(), io.wide()}, args,
                  {RowGroups(args.rows), 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::CrossEntropy& a) {
    const ValueId stats = op.inputs[0];
    Operands io(e);
    CrossEntropyArgs args;
    WEFT_ASSIGN(args.terms, TermsOf(e, a.terms, stats));
    args.stats = io.Reads(stats);
    args.targets = io.Reads(op.inputs[1]);
    args.losses = io.Writes(op.outputs[0]);
    args.hits = io.Writes(op.outputs[1]);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, stats));
    return io.Run("cross_entropy", {kWalkGroup}, args, {CeilDiv(args.rows, kWalkGroup), 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::CrossEntropyGrad& a) {
    const ValueId stats = op.inputs[1], logits = op.outputs[0];
    Operands io(e);
    io.SetRows(e.Cols(logits));
    CrossEntropyGradArgs args;
    WEFT_ASSIGN(args.terms, TermsOf(e, a.terms, stats));
    args.logits = io.Adds(logits, 0);
    args.dloss = io.Reads(op.inputs[0]);
    args.stats = io.Reads(stats);
    args.targets = io.Reads(op.inputs[2]);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, logits));
    args.cols = static_cast<uint32_t>(e.Cols(logits));
    args.first_row = static_cast<int32_t>(a.first_row);
    return io.Run("cross_entropy_grad", {kWalkGroup, io.types(), io.wide()}, args,
                  {RowGroups(args.rows), QuadPieces(e.Cols(logits)), 1});
}

}  // namespace weft::backend::on_gpu
