// Drafts: guesses of the next tokens, which the model verifies in one step.
//
// A step over the last token and k drafted tokens gives the logits after each of these tokens. The
// sampler accepts drafted tokens up to the first one with which it does not agree, and draws the
// token after them from the same step (engine.h). This file has the user's options, and the
// statistics that show whether drafts pay off. prompt_lookup.h, draft_model.h and draft_head.h make
// drafts; batch/step_drafts.h divides a step's rows among sequences.
// Sources: Leviathan et al. 2023; Chen et al. 2023, "Accelerating Large Language Model Decoding
// with Speculative Sampling".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::engine {

// The user's choice. At most one of model and lookup is set.
struct DraftOptions {
    // The file of a draft model with the same vocabulary; kDraftHead: the model's own multi-token
    // prediction layer; the folder of an EAGLE-3 or DFlash head; "": none.
    std::string model{};
    bool separate_head = false;  // `model` is such a folder (Resolved)
    int64_t at_once = 0;  // tokens that such a head drafts in one run; 0: one at a time (Resolved)
    bool lookup = false;  // draft from earlier text (prompt_lookup.h)
    int64_t tokens = 0;   // most drafted tokens of a step; 0: the drafter chooses
    bool always = false;  // draft `tokens` at every step, even if drafts cost more than they gain
    // How the engine verifies a drafted token when tokens are drawn at random. false: the sampler
    // draws as without a draft and accepts the drafted token if it is equal, so the answer is the
    // same, token by token. true: the drafted token is drawn from the draft model's distribution,
    // and Sampler::Judge accepts or replaces it. This accepts more tokens; answers have the same
    // distribution, but are not the same tokens as without drafts. The tokens then also depend on
    // the lengths of drafts, so judged drafts need an engine of one sequence, where other requests
    // cannot change the lengths.
    bool judged = false;
    bool on() const { return lookup || !model.empty(); }
    static constexpr const char* kDraftHead = "mtp";
    bool head() const { return model == kDraftHead || separate_head; }
    // With separate_head and at_once set.
    DraftOptions Resolved() const;
    int64_t most() const;  // `tokens`, or the default if it is 0; at most at_once
};
inline constexpr int64_t kMostDraftTokens = 256;
// Errors: kUsage (both `model` and `lookup`, `tokens` out of range, or `tokens` without `model` or
// `lookup`).
Status CheckDraft(const DraftOptions& options);

// Seconds of a step by its number of rows, learned from steps that ran. Interpolates and
// extrapolates linearly. Thread: one caller.
class StepCosts {
  public:
    void Learn(int64_t rows, double seconds);
    // 0 before the first Learn.
    double Of(int64_t rows) const;

  private:
    struct Seen {
        int64_t rows;
        double seconds;
    };
    std::vector<Seen> seen_;  // ascending by rows
};

// Acceptance rate of one kind of drafts; recent drafts have more weight. prior: the rate before the
// first draft, which weighs as much as two drafts.
class HitRate {
  public:
    explicit HitRate(double prior) : prior_(prior) {}
    double value() const { return (hits_ + 2 * prior_) / (tries_ + 2); }
    void Learn(bool hit) {
        hits_ = kFade * hits_ + (hit ? 1 : 0);
        tries_ = kFade * tries_ + 1;
    }

  private:
    static constexpr double kFade = 0.93;
    double prior_;
    double hits_ = 0, tries_ = 0;
};

}  // namespace weft::engine
