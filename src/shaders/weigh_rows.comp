// Computes y[slot] = weights[slot] * x[token of slot], where a slot is token * used + k, and sets
// rest[slot] = 1. An invocation per element; workgroup (columns, slot).
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats x, weights, y, rest;
    uint cols, used;
};

void main() {
    const uint column = gl_GlobalInvocationID.x, slot = gl_WorkGroupID.y;
    if (column == 0) rest.at[slot] = 1.0;
    if (column >= cols) return;
    y.at[slot * cols + column] = weights.at[slot] * x.at[slot / used * cols + column];
}
