// Times of all_reduce by size and algorithm: which to measure again, and the resulting rows.
//
// Noise only lengthens times, so the least time counts. If a size takes longer than a larger one,
// its measurement was disturbed. An algorithm replaces the built-in one only if it is clearly
// faster in two measurements. An algorithm at a single size between two sizes of another algorithm
// (an island) is measured again, and stays only if it is far faster.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "coll/tuning.h"

namespace weft::coll {

// An algorithm must take less than this share of the built-in one's time to replace it. Of several
// such algorithms, the first within this factor of the fastest wins.
inline constexpr double kClearly = 0.9;
// An island must take less than this share of its neighbors' time.
inline constexpr double kIsland = 0.7;

class TimeTable {
  public:
    // candidates: in order of their number of messages, fewest first.
    explicit TimeTable(std::vector<Algorithm> candidates) : candidates_(std::move(candidates)) {}
    // Adds a measured size, in any order, and returns its index. usual: the built-in choice.
    size_t Add(size_t bytes, Algorithm usual);
    // Records microseconds for candidates[candidate].
    void Note(size_t size, size_t candidate, double us);
    // One more measurement with all candidates is complete.
    void NoteRound(size_t size) { ++sizes_[size].rounds; }

    // The next size to measure again; none: the times are consistent, or were repeated often
    // enough.
    std::optional<size_t> Doubtful() const;
    // Time of the algorithm chosen for that size; 0: not measured.
    double UsOf(size_t size) const;
    // The rows, by size, with monotonic times.
    std::vector<TuningRow> Rows() const;

  private:
    static constexpr int kMostRounds = 4;
    struct Size {
        size_t bytes = 0;
        Algorithm usual = Algorithm::kAuto;
        int rounds = 0;
        std::vector<double> us{};  // by candidate; infinite: not measured
    };
    // Indices of the sizes, ascending.
    std::vector<size_t> Order() const;
    Algorithm ChoiceOf(const Size& size) const;
    double UsBy(const Size& size, Algorithm algorithm) const;
    // Whether the algorithm at choices[at] is an island; choices: by size, ascending.
    static bool IsIsland(const std::vector<Algorithm>& choices, size_t at);

    std::vector<Algorithm> candidates_;
    std::vector<Size> sizes_;
};

// Whether the measured times of a table's all_reduce rows never fall as sizes grow.
bool IsMonotonic(const Tuning& tuning);

}  // namespace weft::coll
