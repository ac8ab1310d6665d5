// Measures a cluster with Weft itself, for a machine file: `weft plan --measure`.
//
// Of each type of weights a small synthetic model runs with all ranks as tensor ranks, in steps of
// 1 to 512 rows, with the ops' timings on: products by type and rows, attention over 1,024
// positions, what the other ops take beside their bytes, what a step takes beside its ops. So does
// one with experts, and one with each type of the KV cache. Then all ranks are stages, so that one
// of them computes at a time; and replicas that train. Of an op the slowest rank counts (unlike
// hosts: the machine is the slowest of them in each; of stages the first), the lower quartile of
// the steps. Then latency and bandwidth of the links, and collectives by size. Watts by the hosts'
// sensors, where there are any. Thread: the main thread (cluster.h).
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
    std::string model = "synthetic:llama-3.2-1b";  // :TYPE:layers=2 follow
    // Without experts, KV types, or types to train in: nothing of these is measured.
    std::string experts = "synthetic:qwen3-30b-a3b";
    std::vector<std::string> kv_types = {"f16", "q8_0", "bf16", "f32"};
    std::vector<std::string> train_types = {"bf16", "f32"};
    std::string train_model = "synthetic:smollm2-135m";
    double seconds = 0.1;  // of each row of links and collectives
};

// say: what is going on. Errors: kUsage (types, ranks), those of the ranks.
Result<Machine> MeasureMachine(const MeasureOptions& options,
                               const std::function<void(const std::string&)>& say);

// The text of a machine file, all of it marked as measured. ParseMachine gives the same machine.
std::string MachineFileText(const Machine& machine);

}  // namespace weft::plan
