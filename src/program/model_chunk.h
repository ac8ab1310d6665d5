// Model chunks: several differentiated Programs in one list, for a rank that has several runs of
// layers.
//
// The ops of a chunk stand together, in the parts that loss.h names, and so do its values; no op
// reads a value of another chunk. Which part of which chunk runs next is the caller's choice.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "program/loss.h"

namespace weft::program {

// Half-open: ops of a Program.
struct OpRange {
    size_t begin = 0, end = 0;
    auto operator<=>(const OpRange&) const = default;
};

struct ModelChunk {
    size_t begin = 0, evaluate_begin = 0, predict_begin = 0, backward_begin = 0, end = 0;  // ops
    ValueId first_value = 0, end_value = 0;
    LossValues loss;                 // kNoValue: another rank has them
    ValueId side_output = kNoValue;  // [1], the same
    ValueId output_gradient = kNoValue, side_gradient = kNoValue;

    OpRange forward() const { return {begin, evaluate_begin}; }
    OpRange evaluate() const { return {evaluate_begin, predict_begin}; }
    OpRange predict() const { return {predict_begin, backward_begin}; }
    OpRange backward() const { return {backward_begin, end}; }
};

// What is done when the passes of a batch are over (update.h): ops [sum_begin, apply_begin) bring
// gradients together and add up their squares, ops [apply_begin, end) update the weights.
struct Update {
    size_t sum_begin = 0, apply_begin = 0, end = 0;
    ValueId norm = kNoValue;  // of AddSquares: all ranks' gradients
    OpRange sum() const { return {sum_begin, apply_begin}; }
    OpRange apply() const { return {apply_begin, end}; }
};

struct ChunkedProgram {
    Program program;
    std::vector<ModelChunk> chunks{};
    Update update{};  // behind all chunks; none: empty
};

// Puts a chunk behind all others. Its ids grow by what is returned.
// side_output: the value that DifferentiateOptions named, or kNoValue.
ValueId AppendChunk(ChunkedProgram& all, ExpandedLoss chunk, ValueId side_output);

// The value of a chunk that has this name; kNoValue where there is none.
ValueId FindIn(const ChunkedProgram& all, size_t chunk, std::string_view name);

}  // namespace weft::program
