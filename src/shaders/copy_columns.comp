// Columns of rows: y[r][h * size + i] = x[row(r)][h * head_cols + begin + i], where row(r) is
// rows[r], or r without a list of rows. Workgroup (columns, row).
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats x, y;
    Ints rows;
    uint x_cols, y_cols, head_cols, begin, size;
};

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint from = uint64_t(rows) == 0 ? row : uint(rows.at[row]);
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < y_cols; i += stride) {
        const uint column = i / size * head_cols + begin + i % size;
        y.at[row * y_cols + i] = x.at[from * x_cols + column];
    }
}
