// The losses of training: the cross-entropy of each learned token; losses over preferences, which
// depend on the log-probabilities of whole answers; and a loss over completions that the model in
// training generates.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::train {

enum class LossKind {
    kTokens,  // cross-entropy (supervised fine-tuning)
    kDpo,     // Rafailov et al. 2023; with label smoothing: Mitchell 2023
    kIpo,     // Azar et al. 2023, with log-probabilities per token
    kOrpo,    // Hong et al. 2024
    kKto,     // Ethayarajh et al. 2024
    kSimpo,   // Meng et al. 2024
    kGrpo,    // Shao et al. 2024
};

inline constexpr char kLossNames[] = "sft, dpo, ipo, orpo, kto, simpo or grpo";

std::string_view LossName(LossKind kind);
std::optional<LossKind> FindLoss(std::string_view name);

inline bool IsPreference(LossKind kind) {
    return kind != LossKind::kTokens && kind != LossKind::kGrpo;
}
// Whether the loss compares the model with a reference model.
bool HasReference(LossKind kind);
// Whether the loss takes pairs of a chosen and a rejected answer; otherwise single answers.
inline bool TakesPairs(LossKind kind) {
    return IsPreference(kind) && kind != LossKind::kKto;
}

// The part of a sample in a preference. Answers that KTO calls desirable are kChosen.
enum class SampleRole : uint8_t {
    kChosen,
    kRejected,
    kMismatched,  // an answer to another prompt, for KTO's estimate of the KL divergence
    kPrompt,      // no preference: a prompt to complete, and a last token that stands for the rest
};
inline constexpr int kSampleRoles = 4;
// Most answers of one record: KTO makes two of a pair, and two mismatched ones.
inline constexpr int kMostAnswers = 4;

}  // namespace weft::train
