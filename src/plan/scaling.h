// What changes with the number of machines and with the context: what `weft plan --plot` draws.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

struct ScalingPoint {
    double x = 0;  // machines, or tokens
    double tok_s = 0;
    std::string layout;
};

struct Scaling {
    std::vector<ScalingPoint> strong;   // 1, 2, 4, ... machines, the same batch
    std::vector<ScalingPoint> weak;     // and that many times the batch
    std::vector<ScalingPoint> context;  // 512, 1024, ... tokens, on all machines
};

// Each point is the fastest layout that fits there; points where none does are left out. Machines:
// up to twice those of the cluster (of unlike ones: of it alone). Errors: none of them fits.
Result<Scaling> FindScaling(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                            const Workload& load);

}  // namespace weft::plan
