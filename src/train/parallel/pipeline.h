// In which order a rank of a pipeline runs the passes of an update's micro-batches: one forward,
// one backward (1F1B, Narayanan et al. 2019, 2021).
//
// Of P stages with V chunks of layers each, chunk c of stage s is number c * P + s on the way of a
// micro-batch. V = 1: a stage runs as many forward passes ahead as there are stages behind it, then
// one backward pass for each forward pass. V > 1 (interleaved): P micro-batches run through a
// stage's first chunk, then the same P through its second, and so on; then the next P. Backward
// passes go the same way from the last chunk to the first. A stage runs 2 (P - s - 1) + (V - 1) P
// passes ahead, and the pipeline fills and empties in a V-th of the time.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

// A place in a pipeline.
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

// What a stage keeps for backward passes at once, at most: of so many (chunk, micro-batch).
int SlotsOf(const PipelinePlace& place);
// Micro-batches that an update has in the end: those of several chunks come by the stages.
int64_t PassesOf(const PipelinePlace& place, int64_t micro_batches);
// Of PassesOf() micro-batches. Over links that take two values each way before they are received,
// no two stages ever wait for each other (tests/train/layout_test.cc).
std::vector<StagePass> SchedulePasses(const PipelinePlace& place, int64_t micro_batches);
// Forward passes alone, of any number of micro-batches, all in slot 0.
std::vector<StagePass> ScheduleForward(const PipelinePlace& place, int64_t micro_batches);

}  // namespace weft::train
