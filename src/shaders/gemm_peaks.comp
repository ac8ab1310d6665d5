// The largest magnitude, as the bits of a float32, of each row or column of a float32, bfloat16 or
// float16 matrix, from which gemm_matrix.glsl derives scales. NaN counts as the largest.
//
// kColumns: y is one of several groups of rows, each with its own peaks; z is a matrix of a stack.
// With a plan (expert_order.comp), the rows are the rows of the plan's slots, times factors.
#version 460
#include "gemm_elements.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kColumns = false;
layout(constant_id = 2) const uint kType = 0;
layout(constant_id = 3) const bool kAligned = false;

layout(push_constant, scalar) uniform Args {
    uint64_t x, peaks, plan, factors;  // plan and factors: may be 0
    uint stride, rows, cols;           // rows: of one matrix
    uint used;                         // slots that share a row
} a;

const uint kEights = 8, kAcross = 8 * kEights;  // columns per workgroup
shared uint most[kAcross];

uvec4 Sizes(vec4 x) { return floatBitsToUint(x) & 0x7fffffffu; }

void PeakOfRow(uint row) {
    const uint lane = gl_LocalInvocationIndex;
    if (lane == 0) most[0] = 0;
    barrier();
    uvec4 peak = uvec4(0);
    for (uint first = 8 * lane; first < a.cols; first += 8 * gl_WorkGroupSize.x) {
        const uint64_t at = a.x + uint64_t(row) * a.stride * BytesOf(kType);
        const Eight x = LoadEight(kType, kAligned, at, first, a.cols);
        peak = max(peak, max(Sizes(x.low), Sizes(x.high)));
    }
    atomicMax(most[0], max(max(peak.x, peak.y), max(peak.z, peak.w)));
    barrier();
    if (lane == 0) Ints(a.peaks).at[row] = int(most[0]);
    barrier();
}

void PeaksOfColumns() {
    const uint lane = gl_LocalInvocationIndex, matrix = gl_WorkGroupID.z;
    const uint down = gl_WorkGroupSize.x / kEights;
    for (uint i = lane; i < kAcross; i += gl_WorkGroupSize.x) most[i] = 0;
    barrier();
    uint rows = a.rows, slots = 0;
    if (a.plan != 0) {
        slots = uint(Ints(a.plan).at[1]);
        rows = uint(Ints(a.plan).at[Ints(a.plan).at[2] + Ints(a.plan).at[3]]);
    }
    const uint each = (rows + gl_NumWorkGroups.y - 1) / gl_NumWorkGroups.y;
    const uint begin = gl_WorkGroupID.y * each, end = min(rows, begin + each);
    const uint first = gl_WorkGroupID.x * kAcross + 8 * (lane % kEights);
    uvec4 low = uvec4(0), high = uvec4(0);
    for (uint i = begin + lane / kEights; i < end; i += down) {
        uint64_t row = uint64_t(matrix) * a.rows + i;
        float factor = 1;
        if (a.plan != 0) {
            const uint slot = uint(Ints(a.plan).at[slots + i]);
            if (a.factors != 0) factor = Floats(a.factors).at[slot];
            row = slot / a.used;
        }
        const uint64_t at = a.x + row * a.stride * BytesOf(kType);
        const Eight x = LoadEight(kType, kAligned, at, first, a.cols);
        low = max(low, Sizes(x.low * factor));
        high = max(high, Sizes(x.high * factor));
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        atomicMax(most[8 * (lane % kEights) + i], low[i]);
        atomicMax(most[8 * (lane % kEights) + 4 + i], high[i]);
    }
    barrier();
    const uint64_t group = uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.z + matrix;
    for (uint i = lane; i < kAcross; i += gl_WorkGroupSize.x) {
        const uint column = gl_WorkGroupID.x * kAcross + i;
        if (column < a.cols) Ints(a.peaks + (group * a.cols + column) * 4).at[0] = int(most[i]);
    }
}

void main() {
    if (kColumns) {
        PeaksOfColumns();
    } else {
        for (uint row = gl_WorkGroupID.x; row < a.rows; row += gl_NumWorkGroups.x) PeakOfRow(row);
    }
}
