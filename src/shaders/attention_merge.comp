// The result of a row and head from the chunks of its keys (attention.comp, kSplit), in their order.
// Workgroup (head, row).
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats partial, sinks, result;  // sinks: 0 where there are none
    Ints row_sequence;
    Sequences sequences;
    uint heads, value_dims, window;
    uint chunks;     // that a row and head has in `partial`
    uint first_row;  // of the rows in `partial`
};

void main() {
    const uint row = first_row + gl_WorkGroupID.y, head = gl_WorkGroupID.x;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint position = uint(sequence.position) + row - uint(sequence.row_begin);
    const uint first = window == 0 || position < window ? 0 : position - window + 1;
    const uint chunk = ChunkOf(position);
    const uint count = position / chunk - first / chunk + 1;
    const uint width = value_dims + 2;
    const uint at = row * heads + head;
    Floats parts = Floats(uint64_t(partial) + uint64_t(at - first_row * heads) * chunks * (width * 4));
    const bool sinks_too = uint64_t(sinks) != 0;
    float largest = parts.at[value_dims];
    for (uint i = 1; i < count; ++i) largest = max(largest, parts.at[i * width + value_dims]);
    if (sinks_too) largest = max(largest, sinks.at[head]);
    float divisor = sinks_too ? exp(sinks.at[head] - largest) : 0.0;
    for (uint i = 0; i < count; ++i) {
        const float weight = exp(parts.at[i * width + value_dims] - largest);
        divisor = fma(weight, parts.at[i * width + value_dims + 1], divisor);
    }
    for (uint d = gl_LocalInvocationIndex; d < value_dims; d += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint i = 0; i < count; ++i) {
            const float weight = exp(parts.at[i * width + value_dims] - largest);
            sum = fma(weight, parts.at[i * width + d], sum);
        }
        result.at[at * value_dims + d] = sum / divisor;
    }
}
