// The weights of hyper-connections (program/streams.h): `merge` weights; if cols is not kStreams,
// the weights of the update; and if cols is not 2 kStreams, a doubly stochastic matrix. kPredict,
// kCorrect: the weights of AltUp, from the coefficients `logits`. Workgroup (1, row), with at least
// kStreams * kStreams invocations.
#version 460
#include "floats.glsl"
#include "glu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 64;
layout(constant_id = 1) const uint kStreams = 4;
layout(constant_id = 2) const uint kMode = 0;
layout(push_constant, scalar) uniform Args {
    Floats logits, base, scale, y;
    uint cols, iterations;
    float eps, magnitude;
};

const uint kConnect = 0, kPredict = 1, kCorrect = 2;
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

// Column i of a row of AltUp's weights: zeros, the weights of the update, and the matrix.
float AltUpWeight(uint row, uint i) {
    const uint from = i / kStreams - 2, to = i % kStreams;
    if (i < 2 * kStreams) {
        return kMode == kCorrect && i >= kStreams ? 1.0 + logits.at[row * kStreams + to] : 0.0;
    }
    const float own = from == to ? 1.0 : 0.0;
    if (kMode == kPredict) return own + logits.at[row * kElements + to * kStreams + from];
    return own - (from == 0 ? 1.0 + logits.at[row * kStreams + to] : 0.0);
}

void main() {
    const uint lane = gl_LocalInvocationIndex, begin = gl_WorkGroupID.y * cols;
    if (kMode != kConnect) {
        for (uint i = lane; i < cols; i += kThreads) {
            y.at[begin + i] = AltUpWeight(gl_WorkGroupID.y, i);
        }
        return;
    }
    const bool mixes = cols > 2 * kStreams;
    for (uint i = lane; i < cols; i += kThreads) {
        const uint part = min(i / kStreams, 2);
        const float x = fma(logits.at[begin + i], scale.at[part], base.at[i]);
        if (part == 0) y.at[begin + i] = Sigmoid(x) + eps;
        if (part == 1) y.at[begin + i] = fma(magnitude, Sigmoid(x), mixes ? 0.0 : eps);
        if (part == 2) matrix[i - 2 * kStreams] = x;
    }
    if (!mixes) return;
    barrier();
    if (lane < kStreams) SoftmaxOfRow(lane);
    for (uint time = 0; time < iterations; ++time) {
        if (time > 0) Normalize(lane, true);
        Normalize(lane, false);
    }
    if (lane < kElements) y.at[begin + 2 * kStreams + lane] = matrix[lane];
}
