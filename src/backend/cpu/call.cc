#include "backend/cpu/call.h"

namespace weft::backend {

void BindCall(Call& call, const Step& step, std::span<const kernels::Sequence> sequences,
              std::span<const kernels::AdaptedRow> adapted, int64_t rows) {
    if (call.rows_at != Slot::kNowhere) call.args.Store(call.rows_at, rows * call.row_factor);
    switch (call.bound) {
        case Bound::kNothing: return;
        case Bound::kTokens: return call.args.Store(call.bound_at, step.tokens.data());
        case Bound::kPositions: return call.args.Store(call.bound_at, step.positions.data());
        case Bound::kOutputRows: return call.args.Store(call.bound_at, step.output_rows.data());
        case Bound::kSequences: return call.args.Store(call.bound_at, sequences);
        case Bound::kAdapted: return call.args.Store(call.bound_at, adapted);
    }
}

}  // namespace weft::backend
