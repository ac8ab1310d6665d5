// Transfers of ZeRO beside the arithmetic: while the ops of one unit of weights run, the next
// unit's weights come in, and gradients of those before it go out, one transfer at a time.
#pragma once

#include <span>

namespace weft::plan {

struct UnitSeconds {
    double forward = 0, backward = 0;  // its ops
    double gather = 0;                 // of its weights, in each direction of a pass
    double sum = 0;                    // of its gradients
};

// Seconds beyond those of the ops. beside: false: each op waits for its transfer.
// contention: a part of the ops' rate that transfers beside them take.
double WaitsForward(std::span<const UnitSeconds> units, bool beside, double contention);
double WaitsBackward(std::span<const UnitSeconds> units, bool beside, double contention);

}  // namespace weft::plan
