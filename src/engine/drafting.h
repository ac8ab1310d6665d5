// Drafts: guesses of the tokens that come next, for the model to check many of them in one step.
//
// A step over the last token and k drafted ones gives the logits after each of them; the longest
// part of the draft that the sampler agrees with stays, and the token after it comes for free
// (engine.h). Here: what is asked for, and what a draft is weighed by. prompt_lookup.h,
// draft_model.h and draft_head.h guess; batch/step_drafts.h shares a step's rows out.
// Sources: Leviathan et al. 2023; Chen et al. 2023, "Accelerating Large Language Model Decoding
// with Speculative Sampling".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::engine {

// What the user asked for. At most one of model and lookup.
struct DraftOptions {
    // A draft model, of the same vocabulary, or kDraftHead: the model's own head; "": none.
    std::string model{};
    bool lookup = false;  // the answer repeats what was said before (prompt_lookup.h)
    int64_t tokens = 0;   // most drafted tokens of a step; 0: the drafter's own choice
    bool always = false;  // drafts `tokens` at every step, whether it pays or not
    // How a guess of a draft model is checked where tokens are drawn. false: the sampler draws as
    // without a draft, and the guess stays where that is what was drawn: the answer is the one
    // without a draft, to the token. true: the guess is drawn from the draft model's distribution
    // and judged (Sampler::Judge): more of them stay, and answers have the same distribution, not
    // the same tokens. Which they are depends on the lengths of drafts, so that it is for an engine
    // of one sequence, where these depend on nothing else.
    bool judged = false;
    bool on() const { return lookup || !model.empty(); }
    static constexpr const char* kDraftHead = "mtp";
    bool head() const { return model == kDraftHead; }
    int64_t most() const;  // `tokens`, or the choice in place of 0
};
inline constexpr int64_t kMostDraftTokens = 256;
// kUsage: two kinds at once, tokens out of range, or tokens without a drafter.
Status CheckDraft(const DraftOptions& options);

// What a step costs by its rows, for weighing a draft: learned from steps that ran, in seconds;
// between and beyond those seen, by a line. Pure arithmetic. Thread: one caller.
class StepCosts {
  public:
    void Learn(int64_t rows, double seconds);
    // 0 before anything was learned.
    double Of(int64_t rows) const;

  private:
    struct Seen {
        int64_t rows;
        double seconds;
    };
    std::vector<Seen> seen_;  // ascending by rows
};

// How often guesses of one kind come true: of late rather than ever. `prior` counts as two tries.
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
