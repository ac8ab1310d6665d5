// The rounds of one AllGather over the control connections (Control::Round).
//
// In the first round, a short value is sent whole, and only the size of a long value. Rank 0
// answers with all values; or, if some are long and all fit together, with a notice of a second
// round; or, if they do not fit, with the size of all values. So no rank holds more than
// kMostGathered bytes, and each rank gets the same answer. Pure: no socket, no clock. Thread: one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/frame.h"

namespace weft::cluster {

class GatherRounds {
  public:
    explicit GatherRounds(std::string name) : name_(std::move(name)) {}

    // A value of more bytes is long.
    static constexpr size_t kMostShort = kMostGathered / kMostRanks;
    // Rank 0's answer to the first round: there is a second one.
    static constexpr std::string_view kRestFollows = "rest";
    static bool IsLong(std::string_view value) { return value.size() > kMostShort; }
    static std::string HeadOf(std::string_view value);

    // Rank 0: its answer in each round. rests: the long values; others are empty. Errors: kCorrupt.
    Result<std::string> Heads(const std::vector<std::string>& heads);
    Result<std::string> Rests(const std::vector<std::string>& rests);
    // Every rank: the values of `size` ranks in rank 0's answer. Errors: kUnsupported (the values
    // have more than kMostGathered bytes), kCorrupt.
    Result<std::vector<std::string>> ValuesOf(std::string_view answer, size_t size) const;

  private:
    Error Malformed() const;

    std::string name_;
    std::vector<std::string> values_;  // rank 0: the short ones
    std::vector<size_t> bytes_;        // rank 0: size of each value
};

}  // namespace weft::cluster
