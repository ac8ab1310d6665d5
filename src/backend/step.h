// Step: what ops of a Program work on, bound by the caller each time that an Executable runs some
// of them. Of inference: rows (tokens) of one or more sequences, their KV pages, and the rows whose
// result is wanted. Of a training pass: rows of whole sequences, and those with a target. Of an
// update: its rate. Views, owned by the caller.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include "kernels/state_write.h"
#include "program/op_row.h"

namespace weft::backend {

using kernels::StateWrite;

struct StepSequence {
    int32_t row_begin = 0;
    int32_t row_count = 0;
    int32_t position = 0;            // of its first row; training: 0
    std::span<const int32_t> pages;  // KV pages, in order of position; training: none
    int32_t adapter = 0;             // program::Adapt; 0: none
    // State slots (below CompileOptions::state_slots) of a Program with recurrent state.
    // `state_from` holds the state before the first row; -1: the sequence begins. The step writes
    // the state after the last row to `state_to`, and the state after each row of `state_writes`
    // (ascending) to its slot. A sequence never writes a slot that another one reads or writes.
    int32_t state_from = -1, state_to = -1;
    std::span<const StateWrite> state_writes{};
};
// KV page `to` of every layer becomes what page `from` is, before anything of the step is computed;
// all of a step's copies in their order.
struct PageCopy {
    int32_t from = 0, to = 0;
};

// What will be asked of each row of a kept value [R, n] once the step is done: the best `top`, or
// fewer, of its first `columns` elements (Executable::ReadTopK; 0: none), all of it (Read). A
// device with memory of its own brings them along. It binds nobody: other questions are answered,
// too.
struct WantedRows {
    program::ValueId value = program::kNoValue;
    int64_t columns = 0;
    int32_t top = 0;
    bool whole = false;
    auto operator<=>(const WantedRows&) const = default;
};

struct Step {
    int64_t number = 0;                  // for errors and traces; of an update: from 1 on
    std::span<const int32_t> tokens;     // [T]
    std::span<const int32_t> positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R] rows whose logits are wanted; may be empty
    std::span<const PageCopy> copies{};
    WantedRows wanted{};

    // Of training. output_rows are the rows with a target, ascending.
    std::span<const int32_t> targets{};  // [R], below the vocabulary's size
    float loss_gradient = 1;             // dL/d(sum of the rows' losses)
    float side_gradient = 0;             // dL/d(side loss)
    int slot = 0;                        // of CompileOptions::slots
    // All of the above is what the slot's last Run without this had. It is so for updates, too,
    // which look at none of it.
    bool again = false;
    // Of updates: gradients count gradient_scale times.
    double rate = 0, gradient_scale = 1;
};

}  // namespace weft::backend
