// Model chunks: several differentiated Programs in one list, for a rank with several ranges of
// layers.
//
// The ops of a chunk are contiguous, in the parts that loss.h names. The chunk's values are
// contiguous, too. No op reads a value of another chunk, except through a view: a chunk that
// generates text reads the weights of a trained one. The caller chooses which part of which
// chunk runs next.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "program/loss.h"

namespace weft::program {

// A half-open range of a Program's ops.
struct OpRange {
    size_t begin = 0, end = 0;
    auto operator<=>(const OpRange&) const = default;
};

struct ModelChunk {
    size_t begin = 0, evaluate_begin = 0, predict_begin = 0, backward_begin = 0, end = 0;  // ops
    ValueId first_value = 0, end_value = 0;
    LossValues loss;                 // kNoValue: on another rank
    ValueId side_output = kNoValue;  // [1]; kNoValue as for loss
    ValueId output_gradient = kNoValue, side_gradient = kNoValue;

    OpRange forward() const { return {begin, evaluate_begin}; }
    OpRange evaluate() const { return {evaluate_begin, predict_begin}; }
    OpRange predict() const { return {predict_begin, backward_begin}; }
    OpRange backward() const { return {backward_begin, end}; }
};

// The update after the forward and backward passes of a batch (update.h): ops [sum_begin,
// apply_begin) sum the gradients over ranks and add up their squares, ops [apply_begin, end) update
// the weights.
struct Update {
    size_t sum_begin = 0, apply_begin = 0, end = 0;
    ValueId norm = kNoValue;  // sum of AddSquares over all ranks' gradients
    OpRange sum() const { return {sum_begin, apply_begin}; }
    OpRange apply() const { return {apply_begin, end}; }
};

struct ChunkedProgram {
    Program program;
    std::vector<ModelChunk> chunks{};
    Update update{};  // after all chunks; may be empty
};

// Appends a chunk, and returns the offset added to its value ids. side_output: the value that
// DifferentiateOptions named, or kNoValue.
ValueId AppendChunk(ChunkedProgram& all, ExpandedLoss chunk, ValueId side_output);

}  // namespace weft::program
