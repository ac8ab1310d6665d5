// Builds the `weft run` or `weft serve` command for a predicted layout.
#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

namespace weft::plan {

struct RunRequest {
    std::string model, draft;  // as on the command line
    std::string kv = "f16";
    // Names of the workers, one per rank except rank 0. Empty: on several hosts, the command has
    // invented names, with one port per rank of a host.
    std::vector<std::string> workers;
    bool pull = false;  // fetch the model from the Hub; rank 0 sends it to other hosts
    std::vector<std::string> lora{};  // NAME=FOLDER
};

// The host on which LaunchCommand's command runs, the first one of the layout; "": the cluster's
// first host. Without a name of the user: "host2".
std::string LaunchHost(const RunRequest& request, const ClusterSpec& cluster,
                       const Prediction& layout);

// Returns a shell command for LaunchHost, such as "weft run qwen3-8b:q4_0 --local
// 2 --tp 1 --pp 2 --tensor-split 10,26 --ctx 4096". It is `weft run` for a single sequence with at
// most one adapter, and `weft serve` for others.
std::string LaunchCommand(const RunRequest& request, const ClusterSpec& cluster,
                          const Prediction& layout, const Workload& load);

// Whether the command has --skip-self-test: results of tensor ranks on unlike devices differ in
// some bits, so the self-test rejects them.
bool SkipsSelfTest(const ClusterSpec& cluster, const Prediction& layout);

}  // namespace weft::plan
