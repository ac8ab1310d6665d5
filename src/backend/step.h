// Step: the data that the ops of a Program work on in one Run of an Executable. Inference: rows
// (tokens) of one or more sequences, their KV pages, and the rows whose logits are requested.
// Forward and backward pass of training: rows of whole sequences, and the rows with a target.
// Update: the learning rate. The spans are views; the caller owns the data.
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
    // Slot `state_from` holds the state before the first row; -1: the sequence begins. The step
    // writes the state after the last row to slot `state_to`. Each entry of `state_writes` (rows
    // ascending) names a row and the slot to which the step writes the state after that row. A
    // sequence never writes a slot that another sequence reads or writes.
    int32_t state_from = -1, state_to = -1;
    std::span<const StateWrite> state_writes{};
    // Number of first rows that belong to a prompt. All-reduces of these rows may be sent in a
    // narrower type (Communicators::prompt_wire).
    int32_t prompt_rows = 0;
    // First position whose tokens have type 1 (the second text of a pair); -1: all have type 0.
    int32_t second = -1;
};
// Copies KV page `from` to page `to` in every layer. All copies of a step run in order, before any
// op of the step.
struct PageCopy {
    int32_t from = 0, to = 0;
};

// Hint: states which data the caller will read from each row of a kept value [R, n] after the step.
// `top`: up to this many of the largest elements among the first `columns` (by
// Executable::ReadTopK); 0: none. `whole`: the whole row (by Read). A device with its own memory
// copies this data to the host in the same step. ReadTopK and Read also work for other data.
struct WantedRows {
    program::ValueId value = program::kNoValue;
    int64_t columns = 0;
    int32_t top = 0;
    bool whole = false;
    auto operator<=>(const WantedRows&) const = default;
};

struct Step {
    int64_t number = 0;                  // the step's number, for errors and traces; for updates,
                                         // their number from 1 on
    std::span<const int32_t> tokens;     // [T]
    std::span<const int32_t> positions;  // [T]
    std::span<const StepSequence> sequences;
    std::span<const int32_t> output_rows;  // [R] rows whose logits are requested; may be empty
    std::span<const PageCopy> copies{};
    WantedRows wanted{};
    bool streams = false;  // which ops the step leaves out: program::Way

    // Training only. output_rows are the rows with a target, ascending.
    std::span<const int32_t> targets{};  // [R], below the vocabulary's size
    // dL/d(loss of a row): loss_gradient, times the row's weight if there are weights.
    float loss_gradient = 1;
    // [R], or [R, CompileOptions::output_columns] if the output is a matrix; or empty
    std::span<const float> row_weights{};
    float side_gradient = 0;  // dL/d(side loss)
    // [T], or empty: noise of the embedding (program::Embedding).
    std::span<const int32_t> noise_keys{};
    std::span<const float> noise_amplitudes{};
    int slot = 0;  // below CompileOptions::slots
    // Whether the fields above are the same as in the last Run of this slot with again = false.
    // Also true for updates, which read none of the fields above.
    bool again = false;
    // Updates only: the learning rate, and the factor for gradients.
    double rate = 0, gradient_scale = 1;
    double average_share = 0;  // of program::ScheduleFreeUpdate
};

}  // namespace weft::backend
