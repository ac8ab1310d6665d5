// Computes the time of the schedule of an update: forward and backward passes through the stages of
// a pipeline, in the trainer's order (train/parallel/pipeline.h), and ZeRO's transfers during a
// pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::plan {

// Seconds of the forward and backward pass of one micro-batch through one model chunk of a stage.
struct ChunkSeconds {
    double forward = 0, backward = 0;
    // Seconds of a message to the next chunk (forward) and to the previous one (backward).
    double hop_forward = 0, hop_backward = 0;
};

struct PipelineWalk {
    std::vector<double> end;   // by stage: end of its last pass
    std::vector<double> busy;  // by stage: seconds of its passes
    int64_t passes = 0;        // number of simulated passes, for tests of the walk's cost
};

// chunks: chunk c of stage s is chunks[s * chunks_of_a_stage + c]; it is number c * stages + s in
// the pipeline. micro_batches: must be a multiple of `stages` if stages have several chunks. A
// round has as many micro-batches as there are stages. Only most_rounds rounds are simulated; each
// further round takes as long as the last one of these.
PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds = 6);

// Seconds of one unit of ZeRO (program/zero.h) in a pass: the ops that use the unit's weights, the
// all-gather of its weights before these ops, and the reduction of its gradients after them.
struct UnitSeconds {
    double ops = 0, gather = 0, sum = 0;
};

// Seconds that transfers add to the ops of a pass. units: in the order in which the pass uses them.
// overlap: while the ops of a unit run, the next unit's weights arrive and the gradients of earlier
// units leave, one transfer at a time. contention: share of their speed that ops lose while a
// transfer runs.
double TransferSeconds(std::span<const UnitSeconds> units, bool overlap, double contention);

}  // namespace weft::plan
