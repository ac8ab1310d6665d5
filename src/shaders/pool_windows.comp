// pool_windows: means of each column over windows of rows, weighted by the softmax of gates
// (program/pool_windows.h). The rows of a sequence are added one after another. Workgroup (columns,
// sequence).
#version 460
#include "floats.glsl"
#include "states.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kOverlaps = false;
layout(push_constant, scalar) uniform Args {
    Floats values, gates;
    Ints positions;
    Floats bias, state, y;
    States states;
    Ints writes;
    uint width, window;
    uint first_row, rows;  // of the step: the part of this dispatch
};

const uint kParts = kOverlaps ? 2 : 1;  // series of values, and means of a state

// A weighted mean that is not divided yet (Milakov and Gimelshein 2018). Weights are relative to
// the highest gate.
struct Mean {
    float peak, weight, sum;
};
const Mean kNothing = Mean(-3.402823466e+38, 0.0, 0.0);

void Add(inout Mean mean, uint row, uint place, uint series, uint column) {
    const uint at = series * width + column, cell = row * kParts * width + at;
    const float gate = gates.at[cell] + bias.at[place * kParts * width + at];
    const float lower = exp(-abs(gate - mean.peak));
    const float fade = gate > mean.peak ? lower : 1.0, share = gate > mean.peak ? 1.0 : lower;
    mean.weight = fma(mean.weight, fade, share);
    mean.sum = fma(mean.sum, fade, share * values.at[cell]);
    mean.peak = max(mean.peak, gate);
}

uint StateOf(int slot, uint part, uint column) {
    return (uint(slot) * kParts + part) * 3 * width + column;
}
Mean Load(int slot, uint part, uint column) {
    if (slot < 0) return kNothing;
    const uint at = StateOf(slot, part, column);
    return Mean(state.at[at], state.at[at + width], state.at[at + 2 * width]);
}
void Store(Mean mean, int slot, uint part, uint column) {
    const uint at = StateOf(slot, part, column);
    state.at[at] = mean.peak;
    state.at[at + width] = mean.weight;
    state.at[at + 2 * width] = mean.sum;
}

void main() {
    const uint column = gl_GlobalInvocationID.x;
    if (column >= width) return;
    StatePart part = PartOf(states.at[gl_WorkGroupID.y], writes, first_row, rows);
    Mean own = Load(part.from, 0, column), next = kNothing;
    if (kOverlaps) next = Load(part.from, 1, column);
    for (int row = part.begin; row < part.end; ++row) {
        const uint position = uint(positions.at[row]), place = position % window;
        if (place == 0) {
            own = position == 0 ? kNothing : next;
            next = kNothing;
        }
        Add(own, row, place, kParts - 1, column);
        if (kOverlaps) Add(next, row, place, 0, column);
        y.at[row * width + column] = place + 1 == window ? own.sum / own.weight : 0.0;
        bool ended = false;
        for (int to; (to = NextSlot(part, writes, row, ended)) >= 0;) {
            Store(own, to, 0, column);
            if (kOverlaps) Store(next, to, 1, column);
        }
    }
}
