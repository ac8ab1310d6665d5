// Adds noise to rows of an embedding whose token is in the table (tensor/noise.h): amplitude * a
// number of the row's key and the column. An invocation handles a column, in workgroups (rows,
// columns).
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    uint64_t y;
    Ints tokens, keys;
    Floats amplitudes;
    uint rows, cols, table_rows;
    int first_row;
};

float NoiseAt(uint key, uint column) {
    uint bits = key + column * 0x9e3779b9u;
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    bits ^= bits >> 16;
    precise const float part = float(bits >> 8) * (1.0 / 8388608.0);
    return part - 1.0;
}

void main() {
    const uint c = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (c >= cols) return;
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        const int at = tokens.at[row] - first_row;
        if (at < 0 || uint(at) >= table_rows) continue;
        precise const float noise = amplitudes.at[row] * NoiseAt(uint(keys.at[row]), c);
        const uint64_t place = uint64_t(row) * cols + c;
        Store(y, kF32, place, Load(y, kF32, place) + noise);
    }
}
