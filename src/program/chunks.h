// Chunks: several differentiated Programs in one list, for a rank that has several runs of layers.
//
// The ops of a chunk stand together, forward then backward, and so do its values; no op reads a
// value of another chunk. Which chunk's forward or backward ops run next is the caller's choice.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "program/differentiate.h"

namespace weft::program {

struct Chunk {
    size_t begin = 0, backward_begin = 0, end = 0;  // ops
    ValueId first_value = 0, end_value = 0;
    ValueId output = kNoValue, side_output = kNoValue;  // kNoValue: another rank has it
    ValueId output_gradient = kNoValue, side_gradient = kNoValue;
};

// What is done when the passes of a batch are over (update.h): ops [sum_begin, apply_begin) bring
// gradients together and add up their squares, ops [apply_begin, end) update the weights.
struct Update {
    size_t sum_begin = 0, apply_begin = 0, end = 0;
    ValueId norm = kNoValue;  // [1] f64: the sum of the squares of all ranks' gradients
};

struct ChunkedProgram {
    Program program;
    std::vector<Chunk> chunks;
    Update update;  // behind all chunks; none: empty
};

// Puts a chunk behind all others. Its ids grow by what is returned.
// output, side_output: the values that DifferentiateOptions named, or kNoValue.
ValueId AppendChunk(ChunkedProgram& all, Differentiated chunk, ValueId output, ValueId side_output);

// The value of a chunk that has this name; kNoValue where there is none.
ValueId FindIn(const ChunkedProgram& all, size_t chunk, std::string_view name);

}  // namespace weft::program
