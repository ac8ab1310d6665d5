// StepDrafts: chooses how many drafted tokens each sequence gets in a step of many sequences.
//
// Drafts come from a lookup in the sequence's own text (prompt_lookup.h) or from a draft model
// (draft_model.h, draft_head.h). StepDrafts maximizes the tokens per second of the step over all
// sequences. A lookup costs almost nothing: StepDrafts chooses the likeliest drafts first, as long
// as one more row gains more than it costs. With a draft model, each sequence gets as many drafted
// tokens as pay off when all sequences have drafts (DraftLength). StepDrafts learns the cost of
// rows from earlier steps. A single sequence thus gets long drafts, because a row costs little
// compared with the weights that the step reads anyway. With many sequences drafts are rare,
// because a drafted row then costs as much as an ordinary token.
//
// Reads no clock. The draft model's steps are the only I/O. Thread: one caller, except for Begin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafts/draft_model.h"
#include "engine/drafts/drafter.h"
#include "engine/drafts/drafting.h"
#include "engine/drafts/prompt_lookup.h"
#include "engine/sampling/sampler.h"
#include "grammar/matcher.h"

namespace weft::engine {

// Counts since the start, as vLLM defines them.
struct DraftCounts {
    int64_t drafts = 0;             // drafts of one sequence in one step
    int64_t drafted = 0;            // drafted tokens
    int64_t accepted = 0;           // accepted tokens
    std::vector<int64_t> by_place;  // accepted tokens by position in the draft, from 0
};

// Source of the drafts of one answer; empty: the answer has no drafts.
struct AnswerDrafts {
    std::optional<PromptLookup> lookup{};
    std::optional<DraftLength> length{};  // set by the first choice
    // Judged drafts (DraftOptions::judged): the sampler that draws drafted tokens, and each token's
    // distribution.
    std::optional<Sampler> own{};
    std::vector<Distribution> chances{};
};

class StepDrafts {
  public:
    explicit StepDrafts(const DraftOptions& options);
    bool on() const { return options_.on(); }
    // Most drafted tokens of a step with `sequences` sequences.
    int64_t most_rows(int64_t sequences) const;
    // Sets the draft model or head, which must outlive this object.
    void Use(Drafter& model) { model_ = &model; }
    // Returns the draft state of a new answer. Thread: any, because it uses only the options: a
    // recovery replaces what the draft model refers to.
    AnswerDrafts Begin(std::span<const int32_t> prompt, const SamplerOptions& sampler) const;

    // A sequence that may have drafts.
    struct Guesser {
        AnswerDrafts* answer = nullptr;
        DraftText text{};                           // text.draft receives the result
        int64_t left = 0;                           // most drafted tokens that the answer can use
        const grammar::Matcher* matcher = nullptr;  // the answer's constraint, if any
    };
    // Drafts for a step in which each of `guessers` has a row. Errors: as DraftModel::Guess; the
    // step then has no drafts, and the next call drafts as this one would have.
    Status Choose(std::span<const Guesser> guessers);
    // Learns the time of a step with `rows` rows, all with logits.
    void LearnStep(int64_t rows, double seconds) { costs_.Learn(RowsKind(rows), seconds); }
    // Drops the learned costs, after the loss of ranks.
    void ForgetCosts() { costs_ = {}; }
    // Counts a step of an answer: `drafted` tokens, of which `checked` were verified and `accepted`
    // accepted.
    void Count(AnswerDrafts& answer, int64_t drafted, int64_t checked, int64_t accepted);
    const DraftCounts& counts() const { return counts_; }

  private:
    struct Guess {
        double chance;  // probability that it and all earlier drafts are accepted
        size_t guesser;
    };
    static int64_t RowsKind(int64_t rows);
    size_t Best(int64_t rows) const;
    void LookUp(std::span<const Guesser> guessers);
    Status Draw(std::span<const Guesser> guessers);

    DraftOptions options_;
    Drafter* model_ = nullptr;
    StepCosts costs_;
    DraftCounts counts_;
    int64_t without_ = 0;  // successive steps that could have had drafts and had none
    std::vector<Guess> guesses_;
    std::vector<double> chances_;
    std::vector<size_t> taken_;
    std::vector<DraftText> texts_;      // for the draft model
    std::vector<DraftLength> lengths_;  // of texts_, after this step
};

}  // namespace weft::engine
