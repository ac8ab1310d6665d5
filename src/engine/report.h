// A rank's report to rank 0, and its JSON form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::engine {

// State and measurements of one rank; rank 0 gathers them for summaries.
struct RankReport {
    int rank = 0;
    std::string host;
    std::string device, hardware;  // device name ("vulkan:0"), hardware name
    int stage = 0, tensor_rank = 0;
    std::string share;  // the part of the model that this rank holds, in words
    std::string wire;   // element type of its all-reduces on the links (--allreduce-dtype); "":
                        // none
    std::string prompt_wire;  // the same for rows of prompts (--prompt-allreduce-dtype)
    uint64_t rss_bytes = 0;
    uint64_t weight_bytes = 0;
    uint64_t kv_bytes = 0;
    uint64_t read_bytes = 0;
    uint64_t received_bytes = 0;  // bytes of weights received from rank 0
    // Experts on the drive (backend::DriveUse).
    int64_t drive_hits = 0, drive_misses = 0, drive_ahead = 0, drive_ahead_used = 0;
    uint64_t drive_bytes = 0;
    double drive_s = 0, drive_wait_s = 0;
    double load_s = 0;
    double step_s = 0, wait_s = 0;  // time in steps, and how much of it is waiting for other ranks
    int64_t energy_uj = -1;         // energy counter of the processors, from an arbitrary start;
                                    // -1: not readable
    // Only from the first rank of each host, with Job::power: joules of the host's power sensors
    // since the job began, by sensor name; and a note on limits of the sensors (hw/power.h).
    std::vector<std::string> sensors;
    std::vector<double> sensor_joules;
    std::string power_note;
    int all_reduces = 0;                // number of this rank's all-reduces in one step
    std::vector<double> all_reduce_us;  // evenly spaced quantiles of their times, ascending,
                                        // rounded to 0.1; the times leave out the wait for slower
                                        // ranks
    std::string trace;                  // timeline events (JSON), with Job::trace
};
// All fields but `trace`, which the rank sends in pieces.
std::string ReportToJson(const RankReport& report);
Result<RankReport> ReportFromJson(const std::string& text);

}  // namespace weft::engine
