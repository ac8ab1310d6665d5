// Gradient of a sum of squares of columns [begin, begin + count) of x: dx = 2 * x * dy[row] in
// these columns, zeros elsewhere. An invocation per element.
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats dy, x, dx;  // dy: of the first row
    uint elements, cols, dy_stride, begin, count;
};

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < elements; i += stride) {
        const uint row = i / cols, column = i % cols;
        const bool counts = column - begin < count;
        dx.at[i] = counts ? 2.0 * dy.at[row * dy_stride] * x.at[i] : 0.0;
    }
}
