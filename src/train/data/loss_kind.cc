#include "train/data/loss_kind.h"

#include <algorithm>
#include <iterator>

namespace weft::train {
namespace {

struct LossRow {
    LossKind kind;
    std::string_view name;
    LossOver over;
    bool reference = false;
};
constexpr LossRow kLosses[] = {
    {LossKind::kTokens, "sft", LossOver::kTokens},
    {LossKind::kDpo, "dpo", LossOver::kAnswers, true},
    {LossKind::kIpo, "ipo", LossOver::kAnswers, true},
    {LossKind::kOrpo, "orpo", LossOver::kAnswers},
    {LossKind::kKto, "kto", LossOver::kAnswers, true},
    {LossKind::kSimpo, "simpo", LossOver::kAnswers},
    {LossKind::kGrpo, "grpo", LossOver::kCompletions},
    {LossKind::kReward, "reward", LossOver::kVectors},
    {LossKind::kClassification, "classification", LossOver::kVectors},
    {LossKind::kContrastive, "contrastive", LossOver::kVectors},
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

LossOver OverOf(LossKind kind) {
    return RowOf(kind).over;
}

bool HasReference(LossKind kind) {
    return RowOf(kind).reference;
}

}  // namespace weft::train
