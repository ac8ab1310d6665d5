// Which algorithm and wire type a collective uses at which size: a table, the same on all ranks of
// a group, built in from the group's shape, or measured (by the autotuner) and carried as JSON.
//
// An immutable value once it is given to a Comm. Each collective has rows of ascending max_bytes;
// a row is right for sizes up to its max_bytes, the last row for all that are larger.
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

// How an all_reduce goes: one row an algorithm, which is the function of that name, in a file of
// its own (coll/all_reduce/algorithms.h). Columns: the name in C++, the name that users type; and
// which groups the autotuner tries it in: those of so many ranks or more (with two ranks, recursive
// doubling is one-shot and a ring is two-shot), and whether several hosts must share the ranks,
// some of them holding several.
#define WEFT_ALGORITHMS(ROW)                               \
    ROW(OneShot, "one_shot", 2, false)                     \
    ROW(TwoShot, "two_shot", 2, false)                     \
    ROW(Ring, "ring", 3, false)                            \
    ROW(RecursiveDoubling, "recursive_doubling", 3, false) \
    ROW(Hierarchical, "hierarchical", 3, true)

// all_gather and reduce_scatter have two of these: kOneShot, everybody straight to everybody, and
// kHierarchical (coll/hierarchical.cc); the other collectives have kOneShot alone.
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
// Those to try in a group; several_hosts: some of which hold several ranks. Never kAuto.
std::vector<Algorithm> AlgorithmsFor(int ranks, bool several_hosts);
// Those that a collective knows, of a group of any size; the first does for each group.
std::vector<Algorithm> AlgorithmsOf(Collective collective);
inline constexpr int kAnyRanks = std::numeric_limits<int>::max();

// What an all_reduce's values travel as (coll/wire.h); the sums are made in the values' own type.
// kFull: as they are, nothing is lost.
enum class WireType { kFull, kBF16, kQ8, kF16 };
// Those to choose from: float16 has a range of its own, and is of values that are float16 already.
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
    size_t max_bytes = 0;  // of the data on one rank, before it is narrowed for the wire
    Choice choice;         // never kAuto
    double p50_us = 0;     // measured for max_bytes; 0: not measured
    bool operator==(const TuningRow&) const = default;
};

// Of a group of ranks.
struct GroupShape {
    int ranks = 1;
    int hosts = 1;          // how many hosts its ranks are on, as the links show it
    bool over_tcp = false;  // some pair is joined by tcp
    // Several hosts share the ranks, some of them holding several.
    bool HoldSeveral() const { return hosts > 1 && hosts < ranks; }
};

class Tuning {
  public:
    // From rules of thumb, for a group that nobody has measured.
    static Tuning BuiltIn(const GroupShape& shape);
    // The JSON of ToJson; hostile input. Errors: kCorrupt.
    static Result<Tuning> FromJson(std::string_view text);
    // {"all_reduce": [{"max_bytes", "algorithm", "wire", "p50_us"}, ...], "all_gather": ...}
    std::string ToJson() const;

    // Replaces the rows of one collective. Errors: kUsage (none, not ascending, a choice of auto).
    Status Set(Collective collective, std::vector<TuningRow> rows);
    const std::vector<TuningRow>& rows(Collective collective) const {
        return rows_[static_cast<size_t>(collective)];
    }
    // What a choice comes to: kAuto with a full wire is the table's algorithm and wire; kAuto with
    // another wire is the table's algorithm.
    Choice For(Collective collective, size_t bytes, Choice asked = {}) const;
    bool operator==(const Tuning&) const = default;

  private:
    Tuning();
    std::array<std::vector<TuningRow>, kCollectives.size()> rows_;
};

// What the table says an all_reduce of `bytes` costs; between measured sizes a straight line, above
// the largest in proportion. 0: not measured.
double PredictedUs(const Tuning& tuning, size_t bytes);
// What a byte more costs an all_reduce of a decode step's size, without the latency: between the
// largest measured size up to 64 KiB and one an eighth of it. 0: not measured.
double UsAByte(const Tuning& tuning);

}  // namespace weft::coll
