// An update's passes through the stages of a pipeline, in the order in which each stage runs them
// (train/parallel/pipeline.h) and no sooner than what they need has come: a walk, no formula.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::plan {

// A pass of one chunk of layers of one stage.
struct ChunkSeconds {
    double forward = 0, backward = 0;
    // Of what it sends on: forwards to the chunk behind it, backwards to the one before it.
    double hop_forward = 0, hop_backward = 0;
};

struct PipelineWalk {
    std::vector<double> end;   // by stage: when its last pass is over
    std::vector<double> busy;  // by stage: seconds of its passes
    int64_t passes = 0;        // walked, for tests of how long a walk takes
};

// chunks: [stage * chunks_of_a_stage + chunk], chunk c of stage s the (c * stages + s)th on the
// way. micro_batches: a multiple of the stages where there are several chunks. The first
// `most_rounds` rounds of as many micro-batches as stages are walked; each later round takes as
// long as the last one walked.
PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds = 6);

}  // namespace weft::plan
