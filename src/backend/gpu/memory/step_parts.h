// Runs a step as two to four parts of its rows, each as a step of its own, so that the device
// computes one part during the all-reduces of the other parts:
//
//     device   0a  0b  1a  1b  2a  2b ...     stage s of a part: the ops between two all-reduces
//     host         0a  0b  1a  1b  2a ...     its all-reduce
//
// Earlier parts have earlier rows of a sequence, so a later part finds their KV rows and recurrent
// states. The last part has all output rows. The parts share weights, caches and scratch memory;
// each has its own tables and its own arena (Buffers::Plan). A row has the same bits as in the
// undivided step if all parts have LeastRowsOfPart rows. With Overlap::kAlways, parts may have
// fewer rows and thus other kernels, whose sums round differently.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "backend/step.h"

namespace weft::backend::on_gpu {

// The most parts of a step of the Program; 0: its steps do not run in parts. Steps may run in parts
// if CompileOptions::overlap allows it, all-reduces are the only transfers of a step's rows, and
// the host reads results of output rows only.
int MostParts(const program::Program& program, const CompileOptions& options);
// The smallest number of rows of a part with CompileOptions::overlap kAuto. All tensor ranks have
// the same number.
int64_t LeastRowsOfPart(const program::Program& program);
// Options for the memory of a part. The options limit the rows of a step to the rows of a part.
CompileOptions PartOptions(CompileOptions options, int most_parts);

// A part of a step. View() refers to this object and to the step.
struct StepPart {
    std::vector<int32_t> tokens, positions, output_rows;
    std::vector<StepSequence> sequences;
    std::vector<StateWrite> state_writes;  // of all sequences

    Step View(const Step& whole) const;
};

// Cuts a step into parts.size() parts of about equally many rows. Returns false if this is
// impossible with at least `least` and at most `most` rows in each part.
bool CutStep(const Step& step, int64_t least, int64_t most, std::span<StepPart> parts);

}  // namespace weft::backend::on_gpu
