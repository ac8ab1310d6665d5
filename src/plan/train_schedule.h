// Walks an update's passes through the stages of a pipeline, in the order in which each stage runs
// them (train/parallel/pipeline.h). A pass starts when its inputs have arrived.
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
    int64_t passes = 0;        // number walked; tests check the cost of a walk by it
};

// chunks: [stage * chunks_of_a_stage + chunk]; chunk c of stage s is number c * stages + s in the
// pipeline. micro_batches: a multiple of the stages if there are several chunks. Walks the first
// `most_rounds` rounds of as many micro-batches as stages; each later round takes as long as the
// last one walked.
PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds = 6);

}  // namespace weft::plan
