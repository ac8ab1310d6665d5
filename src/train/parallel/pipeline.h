// The order in which a pipeline stage runs the passes of an update's micro-batches: forward and
// backward passes alternate (1F1B, Narayanan et al. 2019, 2021).
//
// With P stages of V model chunks, chunk c of stage s has position c * P + s in the pipeline. If V
// = 1, a stage starts with as many forward passes as there are stages after it, then alternates
// forward and backward passes. If V > 1 (interleaved), P micro-batches run through a stage's first
// chunk, then the same P through the second chunk, and so on; then come the next P micro-batches.
// Backward passes run in the same way from the last chunk to the first. A stage starts with 2 (P -
// s - 1) + (V - 1) P forward passes, and its idle time (bubble) is 1 / V of the idle time without
// interleaving.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

// A stage's place in the pipeline.
struct PipelinePlace {
    int stage = 0, stages = 1;
    int chunks = 1;
    bool operator==(const PipelinePlace&) const = default;
};

struct StagePass {
    bool forward = false;
    int chunk = 0;
    int64_t micro_batch = 0;
    int slot = 0;
};

// Number of slots: the most (chunk, micro-batch) pairs whose activations a stage keeps for backward
// passes at the same time.
int SlotsOf(const PipelinePlace& place);
// Number of micro-batches of an update: with several chunks, rounded up to a multiple of the
// stages.
int64_t PassesOf(const PipelinePlace& place, int64_t micro_batches);
// The order of passes for PassesOf() micro-batches. If links buffer two values in each direction,
// no two stages ever wait for each other (tests/train/layout_test.cc).
std::vector<StagePass> SchedulePasses(const PipelinePlace& place, int64_t micro_batches);
// The order of only forward passes, for any number of micro-batches, all in slot 0.
std::vector<StagePass> ScheduleForward(const PipelinePlace& place, int64_t micro_batches);

}  // namespace weft::train
