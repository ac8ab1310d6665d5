// StepDrafts: how many guesses of which sequences go into a step of many sequences.
//
// Each sequence that says tokens has a look-up of its own text (lookup.h), which guesses tokens and
// how likely each of them comes true. A step computes the guesses that make the most tokens a
// second of it, all sequences together: the likeliest first, as long as another row gains more
// than it costs. What rows cost is learned from the steps that run. So one sequence alone is
// drafted far (a row is almost free beside the weights that are read anyway), and many at once
// hardly ever: there every row costs what a token costs.
// Pure arithmetic: no clock, no I/O. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/lookup.h"
#include "grammar/matcher.h"

namespace weft::engine {

// Counts since the beginning, as vLLM has them.
struct DraftCounts {
    int64_t drafts = 0;             // times that a sequence had guesses in a step
    int64_t drafted = 0;            // guesses
    int64_t accepted = 0;           // of them, those that came true
    std::vector<int64_t> by_place;  // the same by place in their draft, 0 the first
};

class StepDrafts {
  public:
    explicit StepDrafts(const DraftOptions& options);
    bool on() const { return options_.on(); }
    // Most guesses of a step, whatever the number of sequences.
    int64_t most_rows() const;

    // Who may have guesses.
    struct Guesser {
        Lookup* lookup = nullptr;
        std::span<const int32_t> text;             // the tokens so far
        int64_t left = 0;                          // most guesses that may be of use
        const grammar::Matcher* matcher = nullptr;  // what the answer must look like, if anything
        std::vector<int32_t>* draft = nullptr;      // out
    };
    // Drafts for a step in which each of `guessers` has a row.
    void Choose(std::span<const Guesser> guessers);
    // A step of so many rows, each with logits behind it, took so long.
    void LearnStep(int64_t rows, double seconds) { costs_.Learn(RowsKind(rows), seconds); }
    // Costs are others from now on: ranks were lost.
    void ForgetCosts() { costs_ = {}; }
    // Of a sequence's `drafted` guesses so many came true.
    void Count(int64_t drafted, int64_t accepted);
    const DraftCounts& counts() const { return counts_; }

  private:
    struct Guess {
        double chance;  // that it and all before it come true
        size_t guesser;
    };
    static int64_t RowsKind(int64_t rows);
    size_t Best(int64_t rows) const;

    DraftOptions options_;
    StepCosts costs_;
    DraftCounts counts_;
    int64_t without_ = 0;  // steps in a row that could have had guesses, and had none
    std::vector<Guess> guesses_;
    std::vector<double> chances_;
    std::vector<size_t> taken_;
};

}  // namespace weft::engine
