// Part of the indexers' scores: arguments, and products of queries and tiles of 32 index keys.
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 1) const uint kType = 1;  // of the cache
layout(constant_id = 2) const uint kDims = 128;
layout(constant_id = 4) const uint kStride = 1;  // positions of a key; if not 1, a key per window
layout(push_constant, scalar) uniform Args {
    Floats q, weights;
    uint64_t cache;
    Floats scores;
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint heads, top, block, local, page_tokens, stride;
    uint first_row;  // of the turn
};

const uint kKeys = 32, kGroups = kThreads / kKeys;
const uint kFours = (kDims + 3) / 4, kPitch = kFours + 1;
shared vec4 tile[kKeys * kPitch];

// Loads `count` keys from key `first` on, and zeros beyond them.
void LoadTile(uint first, uint count, uint first_page) {
    for (uint i = gl_LocalInvocationIndex; i < kKeys * kFours; i += kThreads) {
        const uint key = i / kFours, four = i % kFours;
        const uint position = WindowRow(first + key, kStride);
        vec4 values = vec4(0);
        if (key < count) {
            const uint page = uint(pages.at[first_page + position / page_tokens]);
            const uint slot = page * page_tokens + position % page_tokens;
            values = LoadFour(cache + uint64_t(slot) * RowBytes(kType, kDims), kType, four * 4,
                              kDims);
        }
        tile[key * kPitch + four] = values;
    }
}

// The product of the query at element `at` of q, and a key of the tile.
float Product(uint at, uint key) {
    float dot = 0.0;
    for (uint four = 0; four < kFours; ++four) {
        const vec4 k = tile[key * kPitch + four];
        vec4 x = vec4(0);
        for (uint i = 0; i < 4 && four * 4 + i < kDims; ++i) x[i] = q.at[at + four * 4 + i];
        dot = fma(k.w, x.w, fma(k.z, x.z, fma(k.y, x.y, fma(k.x, x.x, dot))));
    }
    return dot;
}
