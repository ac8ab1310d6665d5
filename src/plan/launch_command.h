// The command that runs a layout: what `weft run` or `weft serve` has to be told so that it cuts
// the model as it was predicted.
#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

namespace weft::plan {

struct RunRequest {
    std::string model, draft;  // as on the command line
    std::string kv = "f16";
    // Workers by name, of all ranks but the first. Empty: where there are several hosts, made-up
    // names, a port for each rank of a host.
    std::vector<std::string> workers;
    bool pull = false;  // the model is of the Hub: fetch it, and send other hosts their parts
};

// Words of a shell: "weft run qwen3-8b:q4_0 --local 2 --tp 1 --pp 2 --tensor-split 10,26 --ctx
// 4096". With one sequence `weft run`, with more `weft serve`. It is for the first of the hosts
// that the layout uses.
std::string LaunchCommand(const RunRequest& request, const ClusterSpec& cluster,
                          const Prediction& layout, const Workload& load);

}  // namespace weft::plan
