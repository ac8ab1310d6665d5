// StepDrafts: how many guesses of which sequences go into a step of many sequences.
//
// Guesses come from a look-up in each sequence's own text (prompt_lookup.h) or from a draft model
// (draft_model.h, draft_head.h). A step computes the guesses that make the most tokens a second of
// it, all sequences together: of look-ups, which cost nothing, the likeliest first, as long as
// another row gains more than it costs; of a draft model as many for each as pay when all are
// drafted so (DraftLength). What rows cost is learned from steps that ran. So one sequence alone is
// drafted far (a row is almost free beside the weights that are read anyway), and many at once
// hardly ever: there every row costs what a token costs.
// No clock, no I/O but the draft model's steps. Thread: one caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft_model.h"
#include "engine/drafter.h"
#include "engine/drafting.h"
#include "engine/prompt_lookup.h"
#include "engine/sampler.h"
#include "grammar/matcher.h"

namespace weft::engine {

// Counts since the beginning, as vLLM has them.
struct DraftCounts {
    int64_t drafts = 0;             // times that a sequence had guesses in a step
    int64_t drafted = 0;            // guesses
    int64_t accepted = 0;           // of them, those that came true
    std::vector<int64_t> by_place;  // the same by place in their draft, 0 the first
};

// What the guesses of one answer come from; nothing: it is not drafted.
struct AnswerDrafts {
    std::optional<PromptLookup> lookup{};
    std::optional<DraftLength> length{};
    // Judged drafts (DraftOptions::judged): what draws them, and what each guess was drawn from.
    std::optional<Sampler> own{};
    std::vector<Distribution> chances{};
};

class StepDrafts {
  public:
    explicit StepDrafts(const DraftOptions& options);
    bool on() const { return options_.on(); }
    // Most guesses of a step of so many sequences.
    int64_t most_rows(int64_t sequences) const;
    // With a draft model or head, what guesses. It outlives this.
    void Use(Drafter& model) { model_ = &model; }
    // What an answer needs to be drafted.
    AnswerDrafts Begin(std::span<const int32_t> prompt, const SamplerOptions& sampler) const;

    // Who may have guesses.
    struct Guesser {
        AnswerDrafts* answer = nullptr;
        DraftText text{};                           // `draft` is where they go
        int64_t left = 0;                           // most guesses that may be of use
        const grammar::Matcher* matcher = nullptr;  // what the answer must look like, if anything
    };
    // Drafts for a step in which each of `guessers` has a row. Errors: as DraftModel::Guess; then
    // there are no drafts, and the next call drafts as this one would have.
    Status Choose(std::span<const Guesser> guessers);
    // A step of so many rows, each with logits behind it, took so long.
    void LearnStep(int64_t rows, double seconds) { costs_.Learn(RowsKind(rows), seconds); }
    // Costs are others from now on: ranks were lost.
    void ForgetCosts() { costs_ = {}; }
    // Of an answer's `drafted` guesses in a step so many were checked, and so many came true.
    void Count(AnswerDrafts& answer, int64_t drafted, int64_t checked, int64_t accepted);
    const DraftCounts& counts() const { return counts_; }

  private:
    struct Guess {
        double chance;  // that it and all before it come true
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
    int64_t without_ = 0;  // steps in a row that could have had guesses, and had none
    std::vector<Guess> guesses_;
    std::vector<double> chances_;
    std::vector<size_t> taken_;
    std::vector<DraftText> texts_;      // that the draft model has to do with
    std::vector<DraftLength> lengths_;  // of them, after this step
};

}  // namespace weft::engine
