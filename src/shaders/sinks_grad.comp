// Each row's addend to the gradient of a head's sink: -exp(sink - lse) * (dout . out of the head).
// An invocation per row and head.
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats sinks;      // [heads]
    Floats lse, sums;  // [heads, rows]; sums of dout * out
    Floats dsinks;     // [rows, heads]
    uint heads, rows;
};

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < rows * heads; i += stride) {
        const uint head = i % heads, at = head * rows + i / heads;
        dsinks.at[i] = -exp(sinks.at[head] - lse.at[at]) * sums.at[at];
    }
}
