#include "train/data/loss_kind.h"

#include <algorithm>
#include <iterator>

namespace weft::train {
namespace {

struct LossRow {
    LossKind kind;
    std::string_view name;
    bool reference;
};
constexpr LossRow kLosses[] = {
    {LossKind::kTokens, "sft", false}, {LossKind::kDpo, "dpo", true},
    {LossKind::kIpo, "ipo", true},     {LossKind::kOrpo, "orpo", false},
    {LossKind::kKto, "kto", true},     {LossKind::kSimpo, "simpo", false},
    {LossKind::kGrpo, "grpo", false},
};

const LossRow& RowOf(LossKind kind) {
    return *std::ranges::find(kLosses, kind, &LossRow::kind);
}

}  // namespace

std::string_view LossName(LossKind kind) {
    return RowOf(kind).name;
}

std::optional<LossKind> FindLoss(std::string_view name) {
    const auto* const found = std::ranges::find(kLosses, name, &LossRow::name);
    return found == std::end(kLosses) ? std::nullopt : std::optional(found->kind);
}

bool HasReference(LossKind kind) {
    return RowOf(kind).reference;
}

}  // namespace weft::train
