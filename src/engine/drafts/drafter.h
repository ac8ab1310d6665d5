// Drafter: drafts tokens with a smaller model (draft_model.h) or with a layer of the model itself
// (draft_head.h). This file has the interface of both (Drafter), and draws one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafts/drafting.h"
#include "engine/rank/rank.h"
#include "engine/sampling/sampler.h"

namespace weft::engine {

// A text whose continuation is drafted. With `count` 0, the drafter only computes the text's KV
// rows.
struct DraftText {
    int64_t id = 0;                    // of the text's request
    std::span<const int32_t> tokens;   // so far
    std::span<const int32_t> pages;    // KV pages for `tokens` and all drafts but the last
    uint64_t space = 0;                // see DraftPages
    int64_t count = 0;                 // tokens to draft
    const Sampler* sampler = nullptr;  // the answer's sampler; drafts are drawn with a copy of it
    size_t prompt = 0;                 // number of prompt tokens
    // Judged drafts (DraftOptions::judged): the sampler that draws drafts instead of `sampler`, and
    // the distribution of each drafted token.
    Sampler* own = nullptr;
    std::vector<Distribution>* chances = nullptr;
    std::vector<int32_t>* draft = nullptr;  // receives at most `count` tokens
};

// Draws a text's next drafted token with `sampler`, a copy of the text's sampler. Appends the token
// to text.draft and to `tokens` (the text with its drafted tokens so far). Errors: the sampler's.
Status DrawGuess(const DraftText& text, std::vector<int32_t>& tokens, Sampler& sampler,
                 const LogitsRow& logits);

// Thread: as Rank.
class Drafter {
  public:
    virtual ~Drafter() = default;
    // Sets the job's rank 0, which recovery from a loss replaces. Errors: errors of loading the
    // drafter's weights for another device.
    virtual Status Serve(Rank& rank) = 0;
    // Cost of one drafted token divided by the cost of a step of the job with one row, estimated
    // from the sizes of the weights.
    virtual double ratio() const = 0;
    // Measured costs of the drafter's steps, by their number of answers.
    virtual const StepCosts& costs() const = 0;
    // A step drafts all tokens of an answer; otherwise one token, and ratio() is its cost.
    virtual bool at_once() const { return false; }
    // Drafts the continuation of each text. Errors: errors of the drafter's steps; kCancelled or a
    // peer's failure when the job ends. After an error, all samplers are unchanged.
    virtual Status Guess(std::span<const DraftText> texts) = 0;
};

}  // namespace weft::engine
