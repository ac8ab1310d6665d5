// causal_conv: convolves each column with its own taps over the rows of its sequence, in order.
// Workgroup (columns, sequence).
#version 460
#include "floats.glsl"
#include "glu.glsl"
#include "states.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTaps = 4;
layout(constant_id = 2) const bool kSilu = false;
layout(constant_id = 3) const bool kGated = false;
layout(push_constant, scalar) uniform Args {
    Floats x, weight, bias, state, y;  // bias, inner, outer: 0 if absent
    Floats inner, outer;
    States states;
    Ints writes;
    uint cols, slot_floats;
    uint first_row, rows;  // of the step: the part of this dispatch
};

void main() {
    const uint column = gl_GlobalInvocationID.x;
    if (column >= cols) return;
    StatePart part = PartOf(states.at[gl_WorkGroupID.y], writes, first_row, rows);
    float taps[kTaps], before[kTaps];  // previous rows, the oldest first
    for (uint j = 0; j < kTaps; ++j) taps[j] = weight.at[column * kTaps + j];
    for (uint j = 0; j + 1 < kTaps; ++j) {
        before[j] = part.from < 0 ? 0.0 : state.at[part.from * slot_floats + j * cols + column];
    }
    const float start = uint64_t(bias) == 0 ? 0.0 : bias.at[column];
    for (int row = part.begin; row < part.end; ++row) {
        const uint cell = row * cols + column;
        before[kTaps - 1] = kGated ? x.at[cell] * inner.at[cell] : x.at[cell];
        float sum = start;
        for (uint j = 0; j < kTaps; ++j) sum = fma(taps[j], before[j], sum);
        if (kSilu) sum *= Sigmoid(sum);
        y.at[cell] = kGated ? sum * outer.at[cell] : sum;
        for (uint j = 0; j + 1 < kTaps; ++j) before[j] = before[j + 1];
        bool ended = false;
        for (int to; (to = NextSlot(part, writes, row, ended)) >= 0;) {
            for (uint j = 0; j + 1 < kTaps; ++j) {
                state.at[to * slot_floats + j * cols + column] = before[j];
            }
        }
    }
}
