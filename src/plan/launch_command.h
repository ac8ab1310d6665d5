// Builds the `weft run` or `weft serve` command for a predicted layout.
#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

namespace weft::plan {

struct RunRequest {
    std::string model, draft;  // as on the command line
    std::string kv = "f16";
    // Names of the workers, one per rank except the first. Empty: if there are several hosts,
    // made-up names, with one port per rank of a host.
    std::vector<std::string> workers;
    bool pull = false;  // the model is on the Hub: fetch it, and send other hosts their parts
};

// A shell command: "weft run qwen3-8b:q4_0 --local 2 --tp 1 --pp 2 --tensor-split 10,26 --ctx
// 4096". One sequence: `weft run`; more: `weft serve`. It is to be run on the first host of the
// layout.
std::string LaunchCommand(const RunRequest& request, const ClusterSpec& cluster,
                          const Prediction& layout, const Workload& load);

// Whether the command has --skip-self-test: tensor ranks on unlike devices do not hold the same
// bits, so the self-test rejects them.
bool SkipsSelfTest(const ClusterSpec& cluster, const Prediction& layout);

}  // namespace weft::plan
