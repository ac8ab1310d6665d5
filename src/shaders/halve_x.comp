// Converts rows of floats to f16: each row is multiplied by a power of two that scales its peak to
// [2^14, 2^15), and padded with zeros to 32 columns. Also writes the inverse power, in float32. A
// row that contains NaN or infinity becomes zeros with a NaN inverse. A workgroup per row.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t x, halves, scales;
    uint rows, cols;
} a;

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Pairs { uint at[]; };

shared uint peak;

void main() {
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    const uint pairs = (a.cols + 31) / 32 * 16;
    for (uint row = gl_WorkGroupID.x; row < a.rows; row += gl_NumWorkGroups.x) {
        const uint64_t x = a.x + uint64_t(row) * a.cols * 4;
        const uint64_t halves = a.halves + uint64_t(row) * pairs * 4;
        if (lane == 0) peak = 0;
        barrier();
        // Compared as integers, magnitudes have the order of the floats, and NaN is the largest.
        uint most = 0;
        for (uint c = lane; c < a.cols; c += lanes) {
            most = max(most, floatBitsToUint(Floats(x).at[c]) & 0x7fffffffu);
        }
        atomicMax(peak, most);
        barrier();
        most = peak;
        const bool finite = most < 0x7f800000u;
        const int shift = clamp(14 - (int(most >> 23) - 127), -120, 120);
        const float scale = uintBitsToFloat(uint(shift + 127) << 23);
        for (uint pair = lane; pair < pairs; pair += lanes) {
            vec2 two = vec2(0);
            if (finite && 2 * pair < a.cols) two.x = Floats(x).at[2 * pair] * scale;
            if (finite && 2 * pair + 1 < a.cols) two.y = Floats(x).at[2 * pair + 1] * scale;
            Pairs(halves).at[pair] = packHalf2x16(two);
        }
        if (lane == 0) {
            Floats(a.scales).at[row] =
                uintBitsToFloat(finite ? uint(127 - shift) << 23 : 0x7fc00000u);
        }
        barrier();
    }
}
