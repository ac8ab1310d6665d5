// Measures a cluster with Weft itself, for a machine file: `weft plan --measure`.
//
// For each weight type, a small synthetic model runs with all ranks as tensor ranks, in steps of 1
// to 512 rows, with op timings on. These runs measure products by type and rows, attention over
// 1,024 positions, the fixed time of other ops, and the fixed time of a step. The same steps run
// with a model with experts, and with each type of the KV cache. Then all ranks run as stages, so
// that one rank computes at a time, and as replicas that train. Last come latency and bandwidth of
// the links, and collectives by size. Watts come from the hosts' sensors, if they have any.
//
// The time of an op is the slowest rank's (of stages: the first stage's), the lower quartile over
// the steps. For unlike hosts the machine gets the slowest host's figure of each kind. Thread: the
// main thread (cluster.h).
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
    engine::Job job;  // device, threads and the like; the layout is all ranks as tensor ranks
    std::vector<std::string> types = {"q4_0", "q8_0", "bf16"};
    std::string model = "synthetic:llama-3.2-1b";  // a suffix :TYPE:layers=2 is added
    // Empty: these measurements are skipped.
    std::string experts = "synthetic:qwen3-30b-a3b";
    std::vector<std::string> kv_types = {"f16", "q8_0", "bf16", "f32"};
    std::vector<std::string> train_types = {"bf16", "f32"};
    std::string train_model = "synthetic:smollm2-135m";
    double seconds = 0.1;  // for each row of links and collectives
};

// say: receives progress. Errors: kUsage (types, ranks), those of the ranks.
Result<Machine> MeasureMachine(const MeasureOptions& options,
                               const std::function<void(const std::string&)>& say);

// The text of a machine file with all figures marked as measured. ParseMachine reads it back.
std::string MachineFileText(const Machine& machine);

}  // namespace weft::plan
