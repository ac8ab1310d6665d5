// Merges the partial results of a row and head over chunks of keys (attention.comp, kSplit), in
// order. kEncodes: also writes the result as codes (codes.glsl); a head must then be whole blocks
// of 32. Workgroup (head, row).
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kEncodes = false;
layout(constant_id = 2) const uint kStride = 0;  // as in attention.comp
layout(constant_id = 3) const uint kTop = 0;
layout(constant_id = 4) const bool kAhead = false;
#include "encode_row.glsl"
layout(push_constant, scalar) uniform Args {
    Floats partial, sinks, result;  // sinks: 0 if there are none
    Ints row_sequence;
    Sequences sequences;
    uint64_t codes, scales;  // kEncodes
    uint heads, value_dims, window;
    uint chunks;     // per row and head in `partial`
    uint first_row;  // first row in `partial`
    uint least_position;  // rows at earlier positions are skipped
    uint block;           // of a list, as in attention.comp
};

void main() {
    const uint row = first_row + gl_WorkGroupID.y, head = gl_WorkGroupID.x;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint own = uint(sequence.position) + row - uint(sequence.row_begin);
    if (own < least_position) return;
    const bool windows = kStride != 0;
    const uint position =
        windows ? WindowKeys(own, window, kStride, kTop) - 1 : LastPlace(window, block, own);
    const uint first = windows ? 0 : FirstKeyOf(window, position);
    const uint sequence_end = uint(sequence.position + sequence.row_count);
    const uint last = kAhead ? LastKeyAhead(window, own, sequence_end) : position;
    const uint chunk = ChunkOf(last);
    const uint count = last / chunk - first / chunk + 1;
    const uint width = value_dims + 2;
    const uint at = row * heads + head;
    Floats parts =
        Floats(uint64_t(partial) + uint64_t(at - first_row * heads) * chunks * (width * 4));
    const bool sinks_too = uint64_t(sinks) != 0;
    float largest = parts.at[value_dims];
    for (uint i = 1; i < count; ++i) largest = max(largest, parts.at[i * width + value_dims]);
    if (sinks_too) largest = max(largest, sinks.at[head]);
    float divisor = sinks_too ? exp(sinks.at[head] - largest) : 0.0;
    for (uint i = 0; i < count; ++i) {
        const float weight = exp(parts.at[i * width + value_dims] - largest);
        divisor = fma(weight, parts.at[i * width + value_dims + 1], divisor);
    }
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    for (uint first = 0; first < value_dims; first += kRowTurn) {
        for (uint turn = lane; turn < min(kRowTurn, value_dims - first); turn += lanes) {
            const uint d = first + turn;
            float sum = 0.0;
            for (uint i = 0; i < count; ++i) {
                const float weight = exp(parts.at[i * width + value_dims] - largest);
                sum = fma(weight, parts.at[i * width + d], sum);
            }
            const precise float value = sum / divisor;
            result.at[at * value_dims + d] = value;
            if (kEncodes) encode_columns[turn] = value;
        }
        if (kEncodes) EncodeTurn(codes, scales, at * value_dims + first, value_dims - first);
    }
}
