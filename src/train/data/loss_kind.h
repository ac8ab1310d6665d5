// The losses of training: the cross-entropy of each learned token; losses over preferences, which
// depend on the log-probabilities of whole answers; a loss over completions that the model in
// training generates; and losses over one vector of each text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::train {

enum class LossKind {
    kTokens,          // cross-entropy (supervised fine-tuning)
    kDpo,             // Rafailov et al. 2023; with label smoothing: Mitchell 2023
    kIpo,             // Azar et al. 2023, with log-probabilities per token
    kOrpo,            // Hong et al. 2024
    kKto,             // Ethayarajh et al. 2024
    kSimpo,           // Meng et al. 2024
    kGrpo,            // Shao et al. 2024
    kReward,          // Bradley and Terry 1952, as TRL's RewardTrainer
    kClassification,  // cross-entropy of the labels
    kContrastive,     // van den Oord et al. 2018, as MultipleNegativesRankingLoss
};

inline constexpr char kLossNames[] =
    "sft, dpo, ipo, orpo, kto, simpo, grpo, reward, classification or contrastive";

std::string_view LossName(LossKind kind);
std::optional<LossKind> FindLoss(std::string_view name);

// The values of which the loss is a function: losses of tokens, log-probabilities of answers or of
// completions, or vectors of texts.
enum class LossOver { kTokens, kAnswers, kCompletions, kVectors };
LossOver OverOf(LossKind kind);

inline bool IsPreference(LossKind kind) {
    return OverOf(kind) == LossOver::kAnswers;
}
inline bool IsOverVectors(LossKind kind) {
    return OverOf(kind) == LossOver::kVectors;
}
// Whether the vector is the output of a score head, which the model has or gets.
inline bool HasHead(LossKind kind) {
    return kind == LossKind::kReward || kind == LossKind::kClassification;
}
// Whether the loss compares the model with a reference model.
bool HasReference(LossKind kind);
// Whether the loss needs pairs of a chosen and a rejected answer; otherwise single answers.
inline bool TakesPairs(LossKind kind) {
    return kind == LossKind::kReward || (IsPreference(kind) && kind != LossKind::kKto);
}

// The part of a sample in a preference. Answers that KTO calls desirable are kChosen.
enum class SampleRole : uint8_t {
    kChosen,
    kRejected,
    kMismatched,  // an answer to another prompt, for KTO's estimate of the KL divergence
    kPrompt,      // a prompt to complete, and a last token for the completion
    kText,        // no preference: a text with a label; or an anchor, its positive, its negatives
};
inline constexpr int kSampleRoles = 5;
// Most answers of one record: KTO makes two of a pair, and two mismatched ones.
inline constexpr int kMostAnswers = 4;

}  // namespace weft::train
