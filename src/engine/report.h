// What a rank tells rank 0 of itself, as it travels (JSON).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::engine {

// What one rank holds and read; gathered on rank 0 for summaries.
struct RankReport {
    int rank = 0;
    std::string host;
    std::string device, hardware;  // what it computes on: "vulkan:0", and its name for people
    int stage = 0, tensor_rank = 0;
    std::string share;  // what of the model it holds, in words
    std::string wire;   // what its sums cross the links as (--allreduce-dtype); "": it has none
    uint64_t rss_bytes = 0;
    uint64_t weight_bytes = 0;
    uint64_t kv_bytes = 0;
    uint64_t read_bytes = 0;
    uint64_t received_bytes = 0;  // of its weights, from rank 0
    double load_s = 0;
    double step_s = 0, wait_s = 0;  // in steps; of them, waiting for other ranks
    int64_t energy_uj = -1;         // of its processors since some time; -1: not readable
    // Where the job asks for it, of the first rank of each host: joules of the host's sensors of
    // power since it began, by their names; and what stands against some (hw/power.h).
    std::vector<std::string> sensors;
    std::vector<double> sensor_joules;
    std::string power_note;
    int all_reduces = 0;               // of this rank in one step
    std::vector<float> all_reduce_us;  // quantiles of their costs, ascending, evenly spaced;
                                       // waiting for the slower rank left out
    std::string trace;                 // timeline events (JSON), where the job asks for them
};
// All but the trace, which is sent in pieces.
std::string ReportToJson(const RankReport& report);
Result<RankReport> ReportFromJson(const std::string& text);

}  // namespace weft::engine
