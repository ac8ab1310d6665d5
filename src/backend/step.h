// Step: the data that ops of a Program work on. The caller binds it for each Run of an Executable.
// Inference: rows (tokens) of one or more sequences, their KV pages, and the rows whose result is
// wanted. Training pass: rows of whole sequences, and the rows with a target. Update: the learning
// rate. The spans are views; the caller owns the data.
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
    int32_t position = 0;            // position of the first row; training: 0
    std::span<const int32_t> pages;  // KV pages, in order of position; training: none
    int32_t adapter = 0;             // program::Adapt; 0: none
    // State slots (below CompileOptions::state_slots) of a Program with recurrent state.
    // `state_from` holds the state before the first row; -1: the sequence begins. The step writes
    // the state after the last row to `state_to`. It writes the state after each row of
    // `state_writes` (ascending) to that entry's slot. A sequence never writes a slot that another
    // sequence reads or writes.
    int32_t state_from = -1, state_to = -1;
    std::span<const StateWrite> state_writes{};
};
// Copies KV page `from` to page `to` in every layer. All copies of a step run in order, before any
// op of the step.
struct PageCopy {
    int32_t from = 0, to = 0;
};

// Hint: the data that the caller will read of each row of a kept value [R, n] after the step.
// `top`: at most this many of the largest of the first `columns` elements (Executable::ReadTopK; 0:
// none). `whole`: the whole row (Read). A device with its own memory copies these data to the host
// with the step. ReadTopK and Read still work for other data.
struct WantedRows {
    program::ValueId value = program::kNoValue;
    int64_t columns = 0;
    int32_t top = 0;
    bool whole = false;
    auto operator<=>(const WantedRows&) const = default;
};

struct Step {
    int64_t number = 0;                  // for errors and traces; updates count from 1
    std::span<const int32_t> tokens;     // [T]
    std::span<const int32_t> positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R] rows whose logits are wanted; may be empty
    std::span<const PageCopy> copies{};
    WantedRows wanted{};

    // Training only. output_rows are the rows with a target, ascending.
    std::span<const int32_t> targets{};  // [R], below the vocabulary's size
    float loss_gradient = 1;             // dL/d(sum of the rows' losses)
    float side_gradient = 0;             // dL/d(side loss)
    int slot = 0;                        // below CompileOptions::slots
    // Whether the fields above are unchanged since the slot's last Run with again = false. Also
    // true for updates, which read none of the fields above.
    bool again = false;
    // Updates only: the learning rate, and the factor for gradients.
    double rate = 0, gradient_scale = 1;
};

}  // namespace weft::backend
