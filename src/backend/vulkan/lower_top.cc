// The best of a row of logits, in stages: each workgroup of a stage keeps the `count` best of some
// values, until one has seen all.
#include <array>
#include <cstdint>

#include "backend/top.h"
#include "backend/vulkan/lower.h"

namespace weft::backend::vulkan {
namespace {

constexpr int64_t kStageItems = 2048;  // kItems of top.comp
constexpr int64_t kMostCandidates = kStageItems / 2;

struct TopArgs {
    uint64_t row = 0, from = 0, to = 0, chosen = 0;
    uint32_t items = 0, count = 0;
};

}  // namespace

Status LowerTop(Emitter& e, Region row, int64_t columns, int64_t count, Region out) {
    static_assert(sizeof(Candidate) == 8);
    if (count < 1 || count > columns || count > kMostCandidates) {
        return MakeError(
            ErrorCode::kUnsupported,
            "the {} best of {} logits: a GPU finds 1 to {}, and no more than there are", count,
            columns, kMostCandidates);
    }
    TopArgs args;
    args.row = row.address;
    args.chosen = out.address;
    args.items = static_cast<uint32_t>(columns);
    args.count = static_cast<uint32_t>(count);
    const uint32_t one = count == 1 ? 1 : 0;
    Region from = row;
    for (int stage = 0;; ++stage) {
        const uint32_t from_row = stage == 0 ? 1 : 0;
        const int64_t groups = (args.items + kStageItems - 1) / kStageItems;
        if (groups == 1) {
            return e.Run("top", {256, from_row, 1, one}, args, {1, 1, 1}, {row, from}, {out});
        }
        const uint64_t bytes = static_cast<uint64_t>(groups * count) * sizeof(uint64_t);
        WEFT_ASSIGN(const Region to, e.Scratch(stage % 2 == 0 ? "top a" : "top b", bytes));
        args.to = to.address;
        WEFT_TRY(e.Run("top", {256, from_row, 0, one}, args, {groups, 1, 1}, {from}, {to}));
        args.from = to.address;
        args.items = static_cast<uint32_t>(groups * count);
        from = to;
    }
}

}  // namespace weft::backend::vulkan
