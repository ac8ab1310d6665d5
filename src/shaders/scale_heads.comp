// y = x times slope[head] * log(position + 1) + offset[head]. Workgroup (columns, row).
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats x;  // [rows, cols]
    Ints positions;
    Floats slope, offset;  // [heads]
    Floats y;
    uint cols, heads;
};

void main() {
    const uint column = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (column >= cols) return;
    const uint head = column / (cols / heads);
    const float grown = log(float(positions.at[row]) + 1.0);
    const uint at = row * cols + column;
    y.at[at] = x.at[at] * (slope.at[head] * grown + offset.at[head]);
}
