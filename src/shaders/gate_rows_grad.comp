// Gradient of y = x * s, with one gate per row and s = sigmoid(gate), softplus(gate) or gate: dx =
// dy * s; dgate is the sum over columns of dy * x, times the derivative of s. A workgroup processes
// a row at a time.
#version 460
#include "element.glsl"
#include "glu.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of dy, x, dx
layout(constant_id = 2) const bool kWide = false;
layout(constant_id = 3) const uint kGate = 0;  // RowGate
layout(push_constant, scalar) uniform Args {
    uint64_t dy, x;
    Floats gate;
    uint64_t dx;
    Floats dgate;
    uint rows, cols;
};

const uint kSigmoid = 0, kSoftplus = 1, kProduct = 2;

void main() {
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        const uint64_t begin = uint64_t(row) * cols;
        const float g = gate.at[row], open = Sigmoid(g);
        const float part = kGate == kProduct ? g : kGate == kSoftplus ? Softplus(g) : open;
        float own = 0;
        for (uint c = 4 * gl_LocalInvocationIndex; c < cols; c += 4 * gl_WorkGroupSize.x) {
            const vec4 slope = LoadQuad(dy, TypeIn(kTypes, 0), begin + c, cols - c, kWide);
            own += dot(slope, LoadQuad(x, TypeIn(kTypes, 1), begin + c, cols - c, kWide));
            StoreQuad(dx, TypeIn(kTypes, 2), begin + c, cols - c, kWide, slope * part);
        }
        const float all = SumOfGroup(own);
        float slope = 1.0;
        if (kGate == kSoftplus) slope = open;
        if (kGate == kSigmoid) slope = open * Sigmoid(-g);
        if (gl_LocalInvocationIndex == 0) dgate.at[row] = all * slope;
    }
}
