// Step: what one step of inference works on, bound by the caller each time that an Executable runs:
// rows (tokens) of one or more sequences, their KV pages, and the rows whose result is wanted.
// Views, owned by the caller.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include "program/op_row.h"

namespace weft::backend {

struct StepSequence {
    int32_t row_begin = 0;
    int32_t row_count = 0;
    int32_t position = 0;            // of its first row
    std::span<const int32_t> pages;  // KV pages, in order of position
    int32_t adapter = 0;             // program::Adapt; 0: none
};
// KV page `to` of every layer becomes what page `from` is, before anything of the step is computed;
// all of a step's copies in their order.
struct PageCopy {
    int32_t from = 0, to = 0;
};
// Which part of a step runs. The first stage of a pipeline may compute the next step while later
// stages have the last one: its Program ends with a Send to them and a Recv of the logits (see
// Executable::ends_with_exchange). The parts of one step run in order, the first two of a step may
// have the third of the step before between them.
enum class StepPart { kWhole, kCompute, kSend, kReceive };

// What will be asked of each row of a kept value [R, n] once the step is done: the best `top`, or
// fewer, of its first `columns` elements (Executable::ReadTop; 0: none), all of it (Read). A device
// with memory of its own brings them along. It binds nobody: other questions are answered, too.
struct WantedRows {
    program::ValueId value = program::kNoValue;
    int64_t columns = 0;
    int32_t top = 0;
    bool whole = false;
    auto operator<=>(const WantedRows&) const = default;
};

struct Step {
    int64_t number = 0;                  // for errors and traces
    std::span<const int32_t> tokens;     // [T]
    std::span<const int32_t> positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R] rows whose logits are wanted; may be empty
    std::span<const PageCopy> copies{};
    StepPart part = StepPart::kWhole;
    WantedRows wanted{};
};

}  // namespace weft::backend
