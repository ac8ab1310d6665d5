// A table that gives the algorithm and wire type of a collective by size. It is the same on all
// ranks of a group. It is either built in, for the group's shape, or measured by the autotuner and
// stored as JSON.
//
// Once a Comm has a table, the table does not change. Each collective has rows with ascending
// max_bytes. A row applies to sizes up to its max_bytes; the last row also applies to larger sizes.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::coll {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };
inline constexpr std::array kCollectives{Collective::kAllReduce, Collective::kAllGather,
                                         Collective::kReduceScatter, Collective::kAllToAll,
                                         Collective::kBroadcast};
const char* CollectiveName(Collective collective);  // "all_reduce", ...

// The algorithms of all_reduce, one row for each. Function and file of an algorithm have the names
// in its row (coll/all_reduce/algorithms.h). Columns: the name in C++; the name that users type;
// the least number of ranks for which the autotuner tries the algorithm (with two ranks, recursive
// doubling equals one-shot, and a ring equals two-shot); and whether the algorithm needs several
// hosts of which some have several ranks.
#define WEFT_ALGORITHMS(ROW)                               \
    ROW(OneShot, "one_shot", 2, false)                     \
    ROW(TwoShot, "two_shot", 2, false)                     \
    ROW(Ring, "ring", 3, false)                            \
    ROW(RecursiveDoubling, "recursive_doubling", 3, false) \
    ROW(Hierarchical, "hierarchical", 3, true)

// all_gather and reduce_scatter have two of these algorithms: kOneShot, in which each rank sends
// directly to each other rank, and kHierarchical (coll/hierarchical.cc). All other collectives have
// only kOneShot.
#define WEFT_ENUMERATOR(name, ...) k##name,
enum class Algorithm { kAuto, WEFT_ALGORITHMS(WEFT_ENUMERATOR) };
#undef WEFT_ENUMERATOR
#define WEFT_VALUE(name, ...) Algorithm::k##name,
inline constexpr std::array kAlgorithms{Algorithm::kAuto, WEFT_ALGORITHMS(WEFT_VALUE)};
#undef WEFT_VALUE
const char* AlgorithmName(Algorithm algorithm);  // "auto", "one_shot", "two_shot", ...
std::vector<std::string> AlgorithmNames();       // the names of all algorithms in kAlgorithms
// Errors: kUsage.
Result<Algorithm> ParseAlgorithm(std::string_view name);
// Algorithms of all_reduce that the autotuner tries in a group, without kAuto. several_hosts: the
// group has several hosts, some of which have several ranks.
std::vector<Algorithm> AlgorithmsFor(int ranks, bool several_hosts);
// Algorithms of a collective, for groups of any size; the first works for every group.
std::vector<Algorithm> AlgorithmsOf(Collective collective);
inline constexpr int kAnyRanks = std::numeric_limits<int>::max();

// Type in which an all_reduce sends values (coll/wire.h). Sums are computed in the values' own
// type. kFull: values are sent unchanged.
enum class WireType { kFull, kBF16, kQ8, kF16 };
// Types that a user can choose. kF16 is not one of them: it is for float16 values only, because its
// range is small.
inline constexpr std::array kWires{WireType::kFull, WireType::kBF16, WireType::kQ8};
const char* WireName(WireType wire);  // "full", "bf16", "q8"
// "f32" is another word for "full". Errors: kUsage.
Result<WireType> ParseWire(std::string_view name);

struct Choice {
    Algorithm algorithm = Algorithm::kAuto;
    WireType wire = WireType::kFull;
    // With kAuto: the algorithm depends on the group only, not on the size. So a value that is
    // rounded to bf16 has the same bits in a sum of any size.
    bool steady = false;
    bool operator==(const Choice&) const = default;
};

struct TuningRow {
    size_t max_bytes = 0;  // size of the data on one rank, before conversion to the wire type
    Choice choice;         // never kAuto
    double p50_us = 0;     // measured for max_bytes; 0: not measured
    bool operator==(const TuningRow&) const = default;
};

struct GroupShape {
    int ranks = 1;
    int hosts = 1;          // number of hosts, found by the kinds of links
    bool over_tcp = false;  // some pair of ranks is joined by tcp
    // Whether there are several hosts, some of which have several ranks.
    bool HoldSeveral() const { return hosts > 1 && hosts < ranks; }
};

class Tuning {
  public:
    // Rules of thumb, for an unmeasured group.
    static Tuning BuiltIn(const GroupShape& shape);
    // Parses the JSON of ToJson; hostile input. Errors: kCorrupt.
    static Result<Tuning> FromJson(std::string_view text);
    // {"all_reduce": [{"max_bytes", "algorithm", "wire", "p50_us"}, ...], "all_gather": ...}
    std::string ToJson() const;

    // Replaces the rows of one collective. Errors: kUsage (no rows, not ascending, or a choice of
    // auto).
    Status Set(Collective collective, std::vector<TuningRow> rows);
    const std::vector<TuningRow>& rows(Collective collective) const {
        return rows_[static_cast<size_t>(collective)];
    }
    // Resolves a choice. If the algorithm is kAuto and the wire type is kFull, both are taken from
    // the table; with kAuto and another wire type, only the algorithm is.
    Choice For(Collective collective, size_t bytes, Choice asked = {}) const;
    bool operator==(const Tuning&) const = default;

  private:
    Tuning();
    std::array<std::vector<TuningRow>, kCollectives.size()> rows_;
};

// Predicted microseconds of an all_reduce of `bytes`: interpolated linearly between measured sizes,
// and proportional to the size above the largest one. 0: nothing was measured.
double PredictedUs(const Tuning& tuning, size_t bytes);
// Microseconds that each further byte adds to an all_reduce with the size of a decode step: the
// slope between the largest measured size up to 64 KiB and the largest up to an eighth of that one.
// 0: not measured.
double UsAByte(const Tuning& tuning);

}  // namespace weft::coll
