// Times of all_reduce by size and algorithm, which sizes of them have to be measured again, and the
// rows that follow from them.
//
// Noise makes single times too long, never too short. So the least time counts; a size at which an
// algorithm takes longer than at a larger one was disturbed; an algorithm replaces the built-in one
// only if that is clear, and was measured twice; and an algorithm at a single size between two
// sizes of another one (an island) is measured again, and stays only where it is far faster.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "coll/tuning.h"

namespace weft::coll {

// Another algorithm must take so much less time than the built-in one to replace it. Of several,
// the first that takes as little as the fastest, up to this.
inline constexpr double kClearly = 0.9;
// An island must take so much less time than the algorithm on both sides of it.
inline constexpr double kIsland = 0.7;

class TimeTable {
  public:
    // candidates: those with fewer messages first.
    explicit TimeTable(std::vector<Algorithm> candidates) : candidates_(std::move(candidates)) {}
    // The place of a size that was measured; sizes may come in any order. usual: the built-in
    // choice.
    size_t Add(size_t bytes, Algorithm usual);
    // Microseconds by candidates[candidate].
    void Note(size_t size, size_t candidate, double us);
    // One more measurement by all candidates is done.
    void NoteRound(size_t size) { ++sizes_[size].rounds; }

    // The size that is to be measured again next; none: the times fit together, or were measured
    // again often enough.
    std::optional<size_t> Doubtful() const;
    // Of the algorithm that is chosen for that size; 0: not measured.
    double UsOf(size_t size) const;
    // By size, with times that do not fall.
    std::vector<TuningRow> Rows() const;

  private:
    static constexpr int kMostRounds = 4;
    struct Size {
        size_t bytes = 0;
        Algorithm usual = Algorithm::kAuto;
        int rounds = 0;
        std::vector<double> us{};  // by candidate; infinite: not measured
    };
    // The places of the sizes, ascending.
    std::vector<size_t> Order() const;
    Algorithm ChoiceOf(const Size& size) const;
    double UsBy(const Size& size, Algorithm algorithm) const;
    // Whether the algorithm at choices[at] is an island; choices: by size, ascending.
    static bool IsIsland(const std::vector<Algorithm>& choices, size_t at);

    std::vector<Algorithm> candidates_;
    std::vector<Size> sizes_;
};

// Whether the measured times of a table's all_reduce rows do not fall as sizes grow.
bool IsMonotonic(const Tuning& tuning);

}  // namespace weft::coll
