// Drafter: what guesses tokens for the engine with numbers of its own: a smaller model
// (draft_model.h), or a layer that the model brings for it (draft_head.h). Here: the texts that are
// drafted, and how one guess is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafting.h"
#include "engine/rank.h"
#include "engine/sampler.h"

namespace weft::engine {

// A text that is to be drafted, or just read.
struct DraftText {
    int64_t id = 0;                    // of its request
    std::span<const int32_t> tokens;   // so far
    std::span<const int32_t> pages;    // for them and all guesses but the last
    uint64_t space = 0;                // see DraftPages
    int64_t count = 0;                 // guesses; 0: the text is read
    const Sampler* sampler = nullptr;  // what draws the answer's tokens, and the same guesses
    size_t prompt = 0;                 // tokens that were given
    // Judged drafts: what draws them instead, and what each was drawn from.
    Sampler* own = nullptr;
    std::vector<Distribution>* chances = nullptr;
    std::vector<int32_t>* draft = nullptr;  // the guesses come here, as many as there can be
};

// Draws the next guess of a text by `sampler`, a copy of the text's, and appends it to the draft
// and to `tokens`, the text with its guesses so far. Errors: the sampler's.
Status DrawGuess(const DraftText& text, std::vector<int32_t>& tokens, Sampler& sampler,
                 const LogitsRow& logits);

// Thread: as Rank.
class Drafter {
  public:
    virtual ~Drafter() = default;
    // The job's rank is another one now: after a loss.
    virtual void Serve(Rank& rank) = 0;
    // The cost of one drafted token divided by the cost of a step of the job with one row, by the
    // sizes of the weights.
    virtual double ratio() const = 0;
    // The measured costs of the drafter's steps that have one row for each answer.
    virtual const StepCosts& costs() const = 0;
    // Guesses what follows each text. Errors: those of its steps; the job's cluster says that
    // drafting should end. After an error no sampler has changed.
    virtual Status Guess(std::span<const DraftText> texts) = 0;
};

}  // namespace weft::engine
