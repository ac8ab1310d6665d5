// The summary of a finished run's ranks: memory, bytes read, the cost of collectives.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/terminal/output.h"
#include "engine/rank/rank.h"

namespace weft::cli {

// Cost of an all-reduce over all ranks, without waiting for slower ranks. Zeros if no all-reduce
// ran.
struct AllReduceCost {
    int per_token = 0;  // all-reduces for one token, summed over the stages
    double p50_us = 0, p99_us = 0;
    // Element types on the wire (--allreduce-dtype, --prompt-allreduce-dtype); "": no all-reduces.
    std::string wire, prompt_wire;
};
AllReduceCost CostOf(const std::vector<engine::RankReport>& reports, const model::Layout& layout);

// The fields `ranks` and `all_reduce`.
Json RanksToJson(const std::vector<engine::RankReport>& reports);
Json ToJson(const AllReduceCost& cost);
// Adds the fields `wire` and `prompt_wire` if there are tensor ranks.
void AddWire(const std::vector<engine::RankReport>& reports, Json& json);

// Prints one line per rank, and one line about the all-reduces.
std::string RanksText(const std::vector<engine::RankReport>& reports, const AllReduceCost& cost,
                      const std::string& transport);

// Writes the timeline of all ranks to `path`.
Status WriteTrace(const std::string& path, const std::vector<engine::RankReport>& reports);

}  // namespace weft::cli
