// Drafters: guesses of the tokens that come next, for the model to check many of them in one step.
//
// A step over the last token and k drafted ones gives the logits after each of them; the longest
// part of the draft that the sampler agrees with stays, and the token after it comes for free
// (engine.h). What a drafter guesses changes the speed of an answer and never its distribution.
// Sources: Leviathan et al. 2023; Chen et al. 2023, "Accelerating Large Language Model Decoding
// with Speculative Sampling".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/sampler.h"

namespace weft::engine {

class Rank;

// What the user asked for. At most one of model and lookup.
struct DraftOptions {
    std::string model{};  // a draft model, of the same vocabulary; "": none
    bool lookup = false;  // the answer repeats what was said before (lookup.h)
    int64_t tokens = 0;   // most drafted tokens of a step; 0: the drafter's own choice
    bool always = false;  // drafts `tokens` at every step, whether it pays or not
    bool on() const { return lookup || !model.empty(); }
    int64_t most() const;  // `tokens`, or the choice in place of 0
};
inline constexpr int64_t kMostDraftTokens = 256;
// kUsage: two kinds at once, tokens out of range, or tokens without a drafter.
Status CheckDraft(const DraftOptions& options);

struct Draft {
    std::vector<int32_t> tokens;
    // What each token was drawn from; empty where they were not drawn but are certain guesses.
    std::vector<Distribution> chances;
    void Clear() {
        tokens.clear();
        chances.clear();
    }
};

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

// Thread: one caller.
class Drafter {
  public:
    virtual ~Drafter() = default;
    // A new answer begins: its prompt, and how its tokens are chosen. Errors: as Propose.
    virtual Status Begin(std::span<const int32_t> prompt, const SamplerOptions& sampler) = 0;
    // At most `most` tokens that may follow `history`, which begins with the prompt and only grows
    // by what the model said. Errors: of a step of the draft model.
    virtual Status Propose(std::span<const int32_t> history, int64_t most, const StepCosts& costs,
                           Draft& draft) = 0;
    // Of the last draft, so many tokens were checked, and so many of them stayed.
    virtual void Learn(int64_t checked, int64_t accepted) = 0;
    // Where the job's rank on this process is another one now: after a loss.
    virtual void Serve(Rank&) {}
};

}  // namespace weft::engine
