// The algorithm and wire type of a collective by size: a table, the same on all ranks of a group,
// built in from the group's shape, or measured by the autotuner and stored as JSON.
//
// An immutable value once a Comm has it. Each collective has rows of ascending max_bytes; a row
// applies to sizes up to its max_bytes, the last row also to larger sizes.
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

// The algorithms of all_reduce: one row each, which names its function and its file
// (coll/all_reduce/algorithms.h). Columns: the name in C++; the name that users type; the least
// number of ranks for which the autotuner tries it (with two ranks, recursive doubling is one-shot
// and a ring is two-shot); and whether it needs several hosts, some of them with several ranks.
#define WEFT_ALGORITHMS(ROW)                               \
    ROW(OneShot, "one_shot", 2, false)                     \
    ROW(TwoShot, "two_shot", 2, false)                     \
    ROW(Ring, "ring", 3, false)                            \
    ROW(RecursiveDoubling, "recursive_doubling", 3, false) \
    ROW(Hierarchical, "hierarchical", 3, true)

// all_gather and reduce_scatter have two of these: kOneShot, in which each rank sends directly to
// each other, and kHierarchical (coll/hierarchical.cc); the other collectives have kOneShot only.
#define WEFT_ENUMERATOR(name, ...) k##name,
enum class Algorithm { kAuto, WEFT_ALGORITHMS(WEFT_ENUMERATOR) };
#undef WEFT_ENUMERATOR
#define WEFT_VALUE(name, ...) Algorithm::k##name,
inline constexpr std::array kAlgorithms{Algorithm::kAuto, WEFT_ALGORITHMS(WEFT_VALUE)};
#undef WEFT_VALUE
const char* AlgorithmName(Algorithm algorithm);  // "auto", "one_shot", "two_shot", ...
std::vector<std::string> AlgorithmNames();       // of kAlgorithms
// Errors: kUsage.
Result<Algorithm> ParseAlgorithm(std::string_view name);
// Algorithms to try in a group; several_hosts: some with several ranks. Never kAuto.
std::vector<Algorithm> AlgorithmsFor(int ranks, bool several_hosts);
// Algorithms of a collective, for groups of any size; the first works for every group.
std::vector<Algorithm> AlgorithmsOf(Collective collective);
inline constexpr int kAnyRanks = std::numeric_limits<int>::max();

// Type of an all_reduce's values on the wire (coll/wire.h); sums use the values' own type. kFull:
// unchanged, lossless.
enum class WireType { kFull, kBF16, kQ8, kF16 };
// Types for the user's choice. float16 is for float16 values only, as its range is small.
inline constexpr std::array kWires{WireType::kFull, WireType::kBF16, WireType::kQ8};
const char* WireName(WireType wire);  // "full", "bf16", "q8"
// "f32" is another word for "full". Errors: kUsage.
Result<WireType> ParseWire(std::string_view name);

struct Choice {
    Algorithm algorithm = Algorithm::kAuto;
    WireType wire = WireType::kFull;
    bool operator==(const Choice&) const = default;
};

struct TuningRow {
    size_t max_bytes = 0;  // data on one rank, before conversion for the wire
    Choice choice;         // never kAuto
    double p50_us = 0;     // measured for max_bytes; 0: not measured
    bool operator==(const TuningRow&) const = default;
};

// The shape of a group of ranks.
struct GroupShape {
    int ranks = 1;
    int hosts = 1;          // number of hosts, as the links show it
    bool over_tcp = false;  // some pair uses tcp
    // Several hosts, some of them with several ranks.
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
    // Resolves a choice: kAuto with a full wire takes the table's algorithm and wire; kAuto with
    // another wire takes the table's algorithm.
    Choice For(Collective collective, size_t bytes, Choice asked = {}) const;
    bool operator==(const Tuning&) const = default;

  private:
    Tuning();
    std::array<std::vector<TuningRow>, kCollectives.size()> rows_;
};

// Predicted time of an all_reduce of `bytes`: linear between measured sizes, proportional above the
// largest. 0: not measured.
double PredictedUs(const Tuning& tuning, size_t bytes);
// Microseconds per further byte of an all_reduce of a decode step's size, without latency: the
// slope between the largest measured size up to 64 KiB and an eighth of it. 0: not measured.
double UsAByte(const Tuning& tuning);

}  // namespace weft::coll
