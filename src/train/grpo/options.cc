#include "train/grpo/options.h"

#include <algorithm>
#include <cmath>

namespace weft::train {
namespace {

Status OneOf(const char* flag, const std::string& word, std::initializer_list<const char*> words) {
    std::string text;
    for (const char* each : words) {
        if (word == each) return {};
        text += text.empty() ? each : std::string(", ") + each;
    }
    return MakeError(ErrorCode::kUsage, "{} {}: expected one of {}", flag, word, text);
}

// Whether low < x <= high.
bool Within(double x, double low, double high) {
    return x > low && x <= high;
}

Status CheckSampling(const GrpoOptions& o) {
    if (o.group < 2 || o.group > 4096) {
        return MakeError(ErrorCode::kUsage,
                         "--group {}: expected 2 to 4096 completions of a prompt, because each is "
                         "compared with the others",
                         o.group);
    }
    if (o.completion_tokens < 0 || o.slots < 0 || o.slots > 4096) {
        return MakeError(ErrorCode::kUsage,
                         "--max-completion-length {} --max-num-seqs {}: expected 1 or more, and 1 "
                         "to 4096",
                         o.completion_tokens, o.slots);
    }
    if (Within(o.temperature, 0, 100) && Within(o.top_p, 0, 1) && o.top_k >= 0) return {};
    return MakeError(ErrorCode::kUsage,
                     "--temperature {} --top-p {} --top-k {}: expected above 0 to 100, above 0 to "
                     "1, and 0 (all tokens) or more",
                     o.temperature, o.top_p, o.top_k);
}

Status CheckRewards(const GrpoOptions& o) {
    if (o.rewards() == 0) {
        return MakeError(ErrorCode::kUsage,
                         "--loss grpo needs a reward: --reward-cmd CMD, --reward-regex RE, "
                         "--reward-json-schema FILE or --reward-model FOLDER");
    }
    if (!o.weights.empty() && o.weights.size() != o.rewards()) {
        return MakeError(ErrorCode::kUsage,
                         "--reward-weights has {} numbers for {} rewards: expected one for each, "
                         "in the order commands, regular expressions, schemas, models",
                         o.weights.size(), o.rewards());
    }
    if (!std::ranges::all_of(o.weights, [](double w) { return std::isfinite(w); })) {
        return MakeError(ErrorCode::kUsage, "--reward-weights: expected finite numbers");
    }
    const bool timeout = o.reward_timeout_s >= 1 && o.reward_timeout_s <= 86'400;
    if (timeout && o.reward_workers >= 1 && o.reward_workers <= 1024) return {};
    return MakeError(ErrorCode::kUsage,
                     "--reward-timeout {} --reward-workers {}: expected 1 to 86400 seconds, and 1 "
                     "to 1024 processes",
                     o.reward_timeout_s, o.reward_workers);
}

}  // namespace

Status CheckGrpo(const GrpoOptions& o) {
    if (!o.on) return {};
    WEFT_TRY(CheckSampling(o));
    WEFT_TRY(CheckRewards(o));
    if (!(o.beta >= 0) || !std::isfinite(o.beta)) {
        return MakeError(ErrorCode::kUsage, "--beta {}: expected 0 (no reference model) or more",
                         o.beta);
    }
    if (!Within(o.epsilon, 0, 1) || !(o.epsilon_high >= 0) || !std::isfinite(o.epsilon_high)) {
        return MakeError(ErrorCode::kUsage,
                         "--epsilon {} --epsilon-high {}: expected above 0 to 1, and above 0",
                         o.epsilon, o.epsilon_high);
    }
    if (o.iterations < 1 || o.iterations > 1000) {
        return MakeError(ErrorCode::kUsage, "--num-iterations {}: expected 1 to 1000",
                         o.iterations);
    }
    WEFT_TRY(OneOf("--loss-type", o.loss_type, {"grpo", "bnpo", "dr_grpo", "dapo"}));
    WEFT_TRY(OneOf("--scale-rewards", o.scale_rewards, {"group", "batch", "none"}));
    return OneOf("--importance-sampling-level", o.importance_level, {"token", "sequence"});
}

}  // namespace weft::train
