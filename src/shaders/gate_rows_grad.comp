// Gradient of y = x * s, with one gate per row and s = sigmoid(gate), softplus(gate) or gate: dx =
// dy * s; dgate is the sum over columns of dy * x, times the derivative of s. A workgroup processes
// a row at a time; with one column, an invocation does.
#version 460
#include "element.glsl"
#include "glu.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of dy, x, dx
layout(constant_id = 2) const bool kWide = false;
layout(constant_id = 3) const uint kGate = 0;  // RowGate
layout(constant_id = 4) const bool kOneColumn = false;
layout(push_constant, scalar) uniform Args {
    uint64_t dy, x;
    Floats gate;
    uint64_t dx;
    Floats dgate;
    uint rows, cols;
};

const uint kSigmoid = 0, kSoftplus = 1, kProduct = 2;

float Opened(float g) {
    return kGate == kProduct ? g : kGate == kSoftplus ? Softplus(g) : Sigmoid(g);
}

float Derivative(float g) {
    return kGate == kProduct ? 1.0 : kGate == kSoftplus ? Sigmoid(g) : Sigmoid(g) * Sigmoid(-g);
}

void MapElements() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < rows; i += stride) {
        const float g = gate.at[i], slope = Load(dy, TypeIn(kTypes, 0), i);
        dgate.at[i] = slope * Load(x, TypeIn(kTypes, 1), i) * Derivative(g);
        Store(dx, TypeIn(kTypes, 2), i, slope * Opened(g));
    }
}

void main() {
    if (kOneColumn) {
        MapElements();
        return;
    }
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        const uint64_t begin = uint64_t(row) * cols;
        const float g = gate.at[row], part = Opened(g);
        float own = 0;
        for (uint c = 4 * gl_LocalInvocationIndex; c < cols; c += 4 * gl_WorkGroupSize.x) {
            const vec4 slope = LoadQuad(dy, TypeIn(kTypes, 0), begin + c, cols - c, kWide);
            own += dot(slope, LoadQuad(x, TypeIn(kTypes, 1), begin + c, cols - c, kWide));
            StoreQuad(dx, TypeIn(kTypes, 2), begin + c, cols - c, kWide, slope * part);
        }
        const float all = SumOfGroup(own);
        if (gl_LocalInvocationIndex == 0) dgate.at[row] = all * Derivative(g);
    }
}
