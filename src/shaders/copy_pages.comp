// Copies pages of a cache, in order. An invocation handles the same few bytes of every page, so
// that dependent copies need no barrier.
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kUnitBytes = 4;  // 16, 4 or 2
layout(push_constant, scalar) uniform Args {
    uint64_t cache;
    Ints copies;  // pairs: from, to
    uint count, page_units;
};

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint unit = gl_GlobalInvocationID.x; unit < page_units; unit += stride) {
        for (uint i = 0; i < count; ++i) {
            const uint from = uint(copies.at[2 * i]), to = uint(copies.at[2 * i + 1]);
            const uint64_t a = cache + (uint64_t(from) * page_units + unit) * kUnitBytes;
            const uint64_t b = cache + (uint64_t(to) * page_units + unit) * kUnitBytes;
            if (kUnitBytes == 16) {
                Quads(b).at[0] = Quads(a).at[0];
            } else if (kUnitBytes == 4) {
                Ints(b).at[0] = Ints(a).at[0];
            } else {
                Halves(b).at[0] = Halves(a).at[0];
            }
        }
    }
}
