// Selects the largest elements in rows of logits, in stages: each workgroup of a stage keeps the
// `count` largest of some values of a row, until one workgroup has seen all.
#include <cstdint>

#include "backend/gpu/lower/lower.h"
#include "backend/top.h"

namespace weft::backend::on_gpu {
namespace {

constexpr int64_t kStageItems = 2048;  // kItems of top.comp
constexpr int64_t kMostCandidates = kStageItems / 2;

struct TopArgs {
    uint64_t row = 0, from = 0, to = 0, chosen = 0;
    uint32_t items = 0, count = 0, stride = 0;
};

}  // namespace

Status LowerTop(Emitter& e, const TopRows& rows, int64_t count, uint64_t to) {
    static_assert(sizeof(Candidate) == 8);
    if (count < 1 || count > rows.columns || count > kMostCandidates) {
        return MakeError(
            ErrorCode::kUnsupported,
            "top {} of {} logits: a GPU finds 1 to {}, and no more than there are logits", count,
            rows.columns, kMostCandidates);
    }
    TopArgs args;
    args.row = rows.address;
    args.chosen = to;
    args.items = static_cast<uint32_t>(rows.columns);
    args.count = static_cast<uint32_t>(count);
    args.stride = static_cast<uint32_t>(rows.stride);
    const int64_t elements = (rows.rows - 1) * rows.stride + rows.columns;
    const Region all{rows.address, static_cast<uint64_t>(elements) * sizeof(float)};
    const Region out{to, static_cast<uint64_t>(rows.rows * count) * sizeof(Candidate)};
    Region from = all;
    for (int stage = 0;; ++stage) {
        const int64_t groups = CeilDiv(args.items, kStageItems);
        const bool last = groups == 1;
        const std::initializer_list<SpecConstant> constants = {256, stage == 0, last, count == 1};
        if (last) return e.Run("top", constants, args, {1, rows.rows, 1}, {all, from}, {out});
        const uint64_t bytes = static_cast<uint64_t>(rows.rows * groups * count) * sizeof(uint64_t);
        WEFT_ASSIGN(const Region kept, e.Scratch(stage % 2 == 0 ? "top a" : "top b", bytes));
        args.to = kept.address;
        WEFT_TRY(e.Run("top", constants, args, {groups, rows.rows, 1}, {from}, {kept}));
        args.from = kept.address;
        args.items = static_cast<uint32_t>(groups * count);
        from = kept;
    }
}

}  // namespace weft::backend::on_gpu
