// Overlap of ZeRO's transfers with arithmetic: while the ops of one unit of weights run, the next
// unit's weights arrive and earlier units' gradients leave, one transfer at a time.
#pragma once

#include <span>

namespace weft::plan {

struct UnitSeconds {
    double forward = 0, backward = 0;  // its ops
    double gather = 0;                 // all-gather of its weights, in each pass
    double sum = 0;                    // reduction of its gradients
};

// Seconds beyond the ops' own. beside: transfers overlap; if false, each op waits for its transfer.
// contention: share of the ops' rate lost while transfers run.
double WaitsForward(std::span<const UnitSeconds> units, bool beside, double contention);
double WaitsBackward(std::span<const UnitSeconds> units, bool beside, double contention);

}  // namespace weft::plan
