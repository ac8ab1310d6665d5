// The residual streams of hyper-connections (program/streams.h). kMerge: y = the sum of the
// streams, weighted. kMix: adds the weighted update to each stream of a mixture of the streams.
// kKeep: adds it to each stream. kSpread: each stream is the update. kScale: y = the first columns
// of a row of x, whose length is weight_cols, each times its own weight. Workgroup (columns, row).
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kStreams = 4;
layout(constant_id = 2) const uint kMode = 0;
layout(push_constant, scalar) uniform Args {
    Floats x, weights, update, y;  // x, weights: not for kSpread; update: not for kMerge
    uint cols, weight_cols;        // of a stream; of a row of weights
};

const uint kMerge = 0, kMix = 1, kKeep = 2, kSpread = 3, kScale = 4;

void main() {
    const uint column = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (column >= cols) return;
    const uint first = row * kStreams * cols + column, own = row * cols + column;
    if (kMode == kScale) {
        y.at[own] = x.at[row * weight_cols + column] * weights.at[column];
        return;
    }
    const uint pre = row * weight_cols, post = pre + kStreams, mixture = post + kStreams;
    float streams[kStreams];
    for (uint i = 0; i < kStreams; ++i) {
        streams[i] = kMode == kSpread ? 0.0 : x.at[first + i * cols];
    }
    if (kMode == kMerge) {
        float sum = weights.at[pre] * streams[0];
        for (uint i = 1; i < kStreams; ++i) sum = fma(weights.at[pre + i], streams[i], sum);
        y.at[own] = sum;
        return;
    }
    const float added = update.at[own];
    for (uint to = 0; to < kStreams; ++to) {
        float sum = added;
        if (kMode == kKeep) sum = fma(weights.at[post + to], sum, streams[to]);
        if (kMode == kMix) {
            sum *= weights.at[post + to];
            for (uint i = 0; i < kStreams; ++i) {
                sum = fma(weights.at[mixture + i * kStreams + to], streams[i], sum);
            }
        }
        y.at[first + to * cols] = sum;
    }
}
