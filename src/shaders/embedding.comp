//: embedding_@ -D@ for PLAIN CODED FP8
// Decodes rows of a weight: y[t] = table[tokens[t] - first_row], zeros for tokens outside the
// table.
// kDecodes: decodes rows [first_row, first_row + n) instead, to float32, bfloat16 or float16. The
// number t counts along z and y.
#version 460
#include "head.glsl"
#include "narrow.glsl"
#include "types.glsl"

layout(constant_id = 1) const bool kDecodes = false;
layout(constant_id = 2) const uint kTo = 0;  // y is float32 (0), bfloat16 (1) or float16 (2)

layout(push_constant, scalar) uniform Args {
    uint64_t plane[4];
    uint64_t tokens, y;
    uint row_units[4];
    uint n, cols;
    int first_row;
} a;

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Pairs { uint at[]; };

uint RoundTwo(vec2 two) {
    if (kTo == 2) return ToF16(two.x) | ToF16(two.y) << 16;
    return ToBF16(two.x) & 0xffffu | ToBF16(two.y) << 16;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    PrepareType(lane, gl_WorkGroupSize.x);
    uint t = gl_WorkGroupID.y;
    int row = 0;
    if (kDecodes) {
        t += gl_WorkGroupID.z * gl_NumWorkGroups.y;
        if (t >= a.n) return;
        row = int(t) + a.first_row;
    } else {
        row = Ints(a.tokens).at[t] - a.first_row;
    }
    const bool held = kDecodes || row >= 0 && row < int(a.n);
    WeightRow at;
    for (int p = 0; p < 4; ++p) {
        at.plane[p] = a.plane[p] + uint64_t(held ? row : 0) * a.row_units[p] * 16;
    }
    const uint64_t y = a.y + uint64_t(t) * a.cols * (kTo != 0 ? 2 : 4);
    const uint units = (a.cols + UNIT - 1) / UNIT;
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint unit = gl_WorkGroupID.x * gl_WorkGroupSize.x + lane; unit < units; unit += stride) {
        vec4 w[QUADS];
        Decode(at, unit, w);
        if (kTo != 0) {  // columns are whole units of a block type
            [[unroll]] for (uint j = 0; j < QUADS; ++j) {
                const uint pair = unit * (UNIT / 2) + 2 * j;
                Pairs(y).at[pair] = RoundTwo(w[j].xy);
                Pairs(y).at[pair + 1] = RoundTwo(w[j].zw);
            }
            continue;
        }
        [[unroll]] for (uint i = 0; i < UNIT; ++i) {
            const uint column = unit * UNIT + i;
            if (column < a.cols) Floats(y).at[column] = held ? w[i / 4][i % 4] : 0.0;
        }
    }
}
