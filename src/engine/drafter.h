// Drafter: drafts tokens with a smaller model (draft_model.h) or with a layer of the model itself
// (draft_head.h). This file has the texts to draft, and draws one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafting.h"
#include "engine/rank.h"
#include "engine/sampler.h"

namespace weft::engine {

// A text to draft, or only to read.
struct DraftText {
    int64_t id = 0;                    // of its request
    std::span<const int32_t> tokens;   // so far
    std::span<const int32_t> pages;    // for them and all drafts but the last
    uint64_t space = 0;                // see DraftPages
    int64_t count = 0;                 // drafts to make; 0: only read the text
    const Sampler* sampler = nullptr;  // the answer's; draws the drafts as well
    size_t prompt = 0;                 // number of prompt tokens
    // Judged drafts: the sampler that replaces `sampler`, and the distribution of each draft.
    Sampler* own = nullptr;
    std::vector<Distribution>* chances = nullptr;
    std::vector<int32_t>* draft = nullptr;  // receives the drafts, at most `count`
};

// Draws a text's next draft with `sampler`, a copy of text.sampler. Appends it to the draft and to
// `tokens`, the text with its drafts so far. Errors: the sampler's.
Status DrawGuess(const DraftText& text, std::vector<int32_t>& tokens, Sampler& sampler,
                 const LogitsRow& logits);

// Thread: as Rank.
class Drafter {
  public:
    virtual ~Drafter() = default;
    // Replaces the job's rank, after a loss.
    virtual void Serve(Rank& rank) = 0;
    // Cost of one drafted token / cost of a job step with one row, by the sizes of the weights.
    virtual double ratio() const = 0;
    // Measured costs of the drafter's steps with one row for each answer.
    virtual const StepCosts& costs() const = 0;
    // Drafts the continuation of each text. Errors: those of its steps; kCancelled, or a peer's
    // failure, when the job ends. After an error no sampler has changed.
    virtual Status Guess(std::span<const DraftText> texts) = 0;
};

}  // namespace weft::engine
