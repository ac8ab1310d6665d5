// Walks the passes of an update through the stages of a pipeline, in the trainer's order
// (train/parallel/pipeline.h), and ZeRO's transfers beside the ops of a pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::plan {

// Seconds of the passes of one model chunk of a stage.
struct ChunkSeconds {
    double forward = 0, backward = 0;
    // Message to the next chunk (forward) and to the previous one (backward).
    double hop_forward = 0, hop_backward = 0;
};

struct PipelineWalk {
    std::vector<double> end;   // by stage: end of its last pass
    std::vector<double> busy;  // by stage: seconds of its passes
};

// chunks: [stage * chunks_of_a_stage + chunk]; chunk c of stage s is number c * stages + s in the
// pipeline. micro_batches: a multiple of the stages if there are several chunks. Walks the first
// `most_rounds` rounds of as many micro-batches as stages; each later round takes as long as the
// last one walked.
PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds = 6);

// Seconds of one unit of ZeRO's weights in a pass: its ops, the all-gather of its weights before
// them, the reduction of its gradients after them.
struct UnitSeconds {
    double ops = 0, gather = 0, sum = 0;
};

// Seconds of a pass beyond its ops. units: in the order of the pass. overlap: while the ops of a
// unit run, the next unit's weights arrive and earlier units' gradients leave, one transfer at a
// time. contention: share of the ops' rate lost while transfers run.
double TransferSeconds(std::span<const UnitSeconds> units, bool overlap, double contention);

}  // namespace weft::plan
