// Element-wise y = f(a, b), where b has the same shape, or is a row or a column. f is
// specialization constant 1 (RowMap of lower_rows.cc). cols: of a row, or the number of columns per
// gate.
#version 460
#include "floats.glsl"
#include "glu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kMap = 0;
layout(push_constant, scalar) uniform Args {
    Floats a, b, y;
    uint count, cols;
    float factor;
    uint length, offset;
};

float Of(uint i) {
    const float x = a.at[i];
    switch (kMap) {
        case 0: return x + b.at[i];
        case 1: return x + b.at[i % cols];
        case 2: return factor * x;
        case 3: return factor * Tanh(x / factor);
        case 4: return x * Sigmoid(b.at[i / cols]);
        case 5: return x * TemperatureAt(Ints(uint64_t(b)).at[i / cols], factor, length, offset);
        case 6: return x * Softplus(b.at[i / cols]);
        case 7: return min(Glu(0, x, 1.0), factor) * clamp(b.at[i], -factor, factor);
        case 11: return max(x, 0.0) * max(x, 0.0);
        default: return Glu(kMap - 8, x, b.at[i]);
    }
}

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) y.at[i] = Of(i);
}
