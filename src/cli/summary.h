// What a finished run tells of its ranks: memory, bytes read, the cost of collectives.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/output.h"
#include "engine/rank.h"

namespace weft::cli {

// Costs of an all-reduce, waiting for the slower rank left out, over all ranks. Zeros without any.
struct AllReduceCost {
    int per_token = 0;  // in one step, all stages together
    double p50_us = 0, p99_us = 0;
    std::string wire;  // what sums cross as (--allreduce-dtype); "": there are none
};
AllReduceCost CostOf(const std::vector<engine::RankReport>& reports, const model::Layout& layout);

// The fields `ranks` and `all_reduce`.
Json RanksToJson(const std::vector<engine::RankReport>& reports);
Json ToJson(const AllReduceCost& cost);
// The field `wire`, where there are tensor ranks.
void AddWire(const std::vector<engine::RankReport>& reports, Json& json);

// A line a rank, and one about the all-reduces.
std::string RanksText(const std::vector<engine::RankReport>& reports, const AllReduceCost& cost,
                      const std::string& transport);

// Writes the timeline of all ranks to `path`.
Status WriteTrace(const std::string& path, const std::vector<engine::RankReport>& reports);

}  // namespace weft::cli
