// The weights of hyper-connections (program/streams.h): `merge` weights, and, if cols is not
// kStreams, the weights of the update and a doubly stochastic matrix. Workgroup (1, row), with at
// least kStreams * kStreams invocations.
#version 460
#include "floats.glsl"
#include "glu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 64;
layout(constant_id = 1) const uint kStreams = 4;
layout(push_constant, scalar) uniform Args {
    Floats logits, base, scale, y;
    uint cols, iterations;
    float eps;
};

const uint kElements = kStreams * kStreams;
shared float matrix[kElements];
shared float sums[kStreams];

void SoftmaxOfRow(uint row) {
    float largest = matrix[row * kStreams], sum = 0.0;
    for (uint i = 1; i < kStreams; ++i) largest = max(largest, matrix[row * kStreams + i]);
    for (uint i = 0; i < kStreams; ++i) {
        const float part = exp(matrix[row * kStreams + i] - largest);
        matrix[row * kStreams + i] = part;
        sum += part;
    }
    for (uint i = 0; i < kStreams; ++i) {
        matrix[row * kStreams + i] = matrix[row * kStreams + i] / sum + eps;
    }
}

// Divides each element by the sum of its row, or of its column, plus eps.
void Normalize(uint lane, bool rows) {
    barrier();
    if (lane < kStreams) {
        float sum = 0.0;
        for (uint i = 0; i < kStreams; ++i) {
            sum += matrix[rows ? lane * kStreams + i : i * kStreams + lane];
        }
        sums[lane] = sum + eps;
    }
    barrier();
    if (lane < kElements) matrix[lane] /= sums[rows ? lane / kStreams : lane % kStreams];
}

void main() {
    const uint lane = gl_LocalInvocationIndex, begin = gl_WorkGroupID.y * cols;
    for (uint i = lane; i < cols; i += kThreads) {
        const uint part = min(i / kStreams, 2);
        const float x = fma(logits.at[begin + i], scale.at[part], base.at[i]);
        if (part == 0) y.at[begin + i] = Sigmoid(x) + eps;
        if (part == 1) y.at[begin + i] = 2.0 * Sigmoid(x);
        if (part == 2) matrix[i - 2 * kStreams] = x;
    }
    if (cols == kStreams) return;
    barrier();
    if (lane < kStreams) SoftmaxOfRow(lane);
    for (uint time = 0; time < iterations; ++time) {
        if (time > 0) Normalize(lane, true);
        Normalize(lane, false);
    }
    if (lane < kElements) y.at[begin + 2 * kStreams + lane] = matrix[lane];
}
