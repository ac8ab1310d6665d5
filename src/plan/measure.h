// `weft plan --measure`: runs Weft on a cluster and derives the figures of a machine file.
//
// For each weight type, a small synthetic model runs with all ranks as tensor ranks, in steps of 1
// to 512 rows, with op timings on. These runs measure matrix products by weight type and rows,
// attention over 1,024 positions, the fixed time of other ops, and the fixed time of a step. The
// same steps run with a model with experts, and with each type of the KV cache. Then all ranks run
// as pipeline stages, so that one rank computes at a time, and as replicas in training. The last
// measurements are latency and bandwidth of the links, and the time of collectives by size. Watts
// come from the hosts' sensors, if they have any.
//
// The time of an op in a step is the slowest rank's time (with stages: the first stage's); its
// figure is the lower quartile over the steps. If hosts differ, each figure of the machine is the
// slowest host's. Thread: the main thread (cluster.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/job.h"
#include "plan/machine.h"

namespace weft::plan {

struct MeasureOptions {
    cluster::ClusterOptions cluster;
    engine::Job job;  // device, threads and similar options; its layout: all ranks as tensor ranks
    std::vector<std::string> types = {"q4_0", "q8_0", "bf16"};
    std::string model = "synthetic:llama-3.2-1b";  // a suffix :TYPE:layers=2 is added
    // The measurement of an empty member is skipped.
    std::string experts = "synthetic:qwen3-30b-a3b";
    std::vector<std::string> kv_types = {"f16", "q8_0", "q5_1", "q4_0", "bf16", "f32"};
    std::vector<std::string> train_types = {"bf16", "f32"};
    std::string train_model = "synthetic:smollm2-135m";
    double seconds = 0.1;  // time for each size of a link or collective
};

// say: receives progress messages. Errors: kUsage (an unknown type or model), and errors of the
// ranks.
Result<Machine> MeasureMachine(const MeasureOptions& options,
                               const std::function<void(const std::string&)>& say);

}  // namespace weft::plan
