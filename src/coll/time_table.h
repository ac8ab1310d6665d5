// Table of measured times of all_reduce by size and algorithm. It chooses the sizes to measure
// again, and makes the rows of a Tuning.
//
// Disturbances only make times longer, so the shortest time is used. If a size takes longer than a
// larger one, its measurement was disturbed. An algorithm replaces the built-in one only if it is
// clearly faster in two measurements. An algorithm at a single size between two sizes of another
// algorithm (an island) is measured again, and stays only if it is far faster.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "coll/tuning.h"

namespace weft::coll {

// To replace the built-in algorithm, an algorithm must take less than this share of its time. If
// several do, the first candidate that is nearly as fast as the fastest one is chosen: the fastest
// one's time is more than this share of the candidate's.
inline constexpr double kClearly = 0.9;
// An island must take less than this share of its neighbors' time.
inline constexpr double kIsland = 0.7;

class TimeTable {
  public:
    // candidates: ordered by their number of messages, fewest first.
    explicit TimeTable(std::vector<Algorithm> candidates) : candidates_(std::move(candidates)) {}
    // Adds a measured size and returns its index. Sizes may be added in any order. usual: the
    // built-in choice for this size.
    size_t Add(size_t bytes, Algorithm usual);
    // Notes a measured time of candidates[candidate] for the size with index `size`.
    void Note(size_t size, size_t candidate, double us);
    // Notes that all candidates have been measured once more for this size.
    void NoteRound(size_t size) { ++sizes_[size].rounds; }

    // The index of the next size to measure again. nullopt: the times are consistent, or were
    // measured often enough.
    std::optional<size_t> Doubtful() const;
    // Microseconds of the algorithm that is chosen for this size; 0: not measured.
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
