// Rows of a KV cache of any type, and their locations by a step's tables.
#include "floats.glsl"
#include "halves.glsl"
#include "sequences.glsl"
#extension GL_EXT_shader_16bit_storage : require

layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words2 { uvec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Quads { vec4 at[]; };

// CacheType of lower/attention.cc. From kQ8_0 on, types of blocks (kernels/cache_blocks.h).
const uint kF32 = 0, kBF16 = 1, kF16 = 2, kQ8_0 = 3, kQ5_1 = 4, kQ4_0 = 5;
bool HasBlocks(uint type) { return type >= kQ8_0; }
uint BlockBytes(uint type) { return type == kQ8_0 ? 34 : type == kQ5_1 ? 24 : 18; }

// Attention of few rows divides a row's keys into chunks (attention.comp). The chunk size depends
// only on the row's position: 128, or more if that would give more than kMostChunks.
const uint kMostChunks = 128;
uint ChunkOf(uint position) {
    uint chunk = 128;
    while (position >= chunk * kMostChunks) chunk *= 2;
    return chunk;
}

// A window value with this bit means that a row attends to a list of positions, or of blocks; the
// other bits are the list's capacity in positions.
const uint kListed = 1u << 30, kMostListed = kListed - 1;
bool IsListed(uint window) {
    return window >= kListed && window < 0x80000000u;
}
// Positions of a list's entry. A list of the positions of windows has this bit in `block`, and the
// positions of a window in the other bits.
const uint kPooled = 1u << 31;
uint EntryPositions(uint block) { return block >= kPooled ? 1 : block; }
// For a list: the last place of the list that the row attends to. A list of blocks ends with the
// row's own block, up to its position. A list of windows' positions ends with those up to the row's
// that are in no window yet. For other windows: the row's position. The result determines the row's
// chunks.
uint LastPlace(uint window, uint block, uint position) {
    const uint listed = window & kMostListed, each = block & ~kPooled;
    if (!IsListed(window) || position < listed) return position;
    return listed - each + (block >= kPooled ? position + 1 : position) % each;
}

// A cache of windows of `stride` positions has a row for each window, the row of the window's last
// position; a row has min(stride, kLeastPage) positions (program/program.h).
const uint kLeastPage = 64;
uint RowPositions(uint stride) { return min(stride, kLeastPage); }
uint WindowRow(uint window, uint stride) {
    return ((window + 1) * stride - 1) / RowPositions(stride);
}
// The number of keys of a row that attends to its last `single` positions and to windows: the
// `top` chosen ones (0: all) of those that end at or before its position.
uint WindowKeys(uint position, uint single, uint stride, uint top) {
    const uint windows = (position + 1) / stride;
    return min(single, position + 1) + (top != 0 ? min(windows, top) : windows);
}

// The first key that a query sees. The window is a number of keys (0: all keys) or, if its highest
// bit is set, the size of chunks in which queries see keys.
uint FirstKeyOf(uint window, uint position) {
    if (window >= 0x80000000u) {
        const uint chunk = window & 0x7fffffffu;
        return position / chunk * chunk;
    }
    if (IsListed(window)) return 0;
    return window == 0 || position < window ? 0 : position - window + 1;
}

// The last key that a query sees if it also sees keys after its own: the keys of a window on each
// side (0: all), up to `end`, the key after its sequence's last row.
uint LastKeyAhead(uint window, uint position, uint end) {
    return window == 0 ? end - 1 : min(end - 1, position + window - 1);
}

uint RowBytes(uint type, uint dims) {
    if (HasBlocks(type)) return dims / 32 * BlockBytes(type);
    return type == kF32 ? dims * 4 : dims * 2;
}

vec4 FromHalves(uint type, uint low, uint high) {
    if (type == kF16) return vec4(unpackHalf2x16(low), unpackHalf2x16(high));
    return uintBitsToFloat(
        uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
}

// Element d of the row at `row`, for a float type.
float LoadOne(uint64_t row, uint type, uint d) {
    if (type == kF32) return Floats(row).at[d];
    return FromHalves(type, uint(Halves(row).at[d]), 0).x;
}

// The 16 bits i and i + 1 of a block.
uint PairOf(Halves block, uint i) { return uint(block.at[i]) | uint(block.at[i + 1]) << 16; }

// Elements [d, d + 4) of a block, with the bits of DequantizeRow (a code times a scale is exact).
vec4 FourOfBlock(Halves block, uint type, uint d) {
    const float scale = HalvesOf(uint(block.at[0])).x;
    if (type == kQ8_0) {
        const int codes = int(PairOf(block, 1 + d / 2));
        return scale * vec4(codes << 24 >> 24, codes << 16 >> 24, codes << 8 >> 24, codes >> 24);
    }
    const uint first = type == kQ5_1 ? 4 : 1;  // of the codes
    uint codes = PairOf(block, first + d % 16 / 2) >> d / 16 * 4 & 0x0f0f0f0fu;
    const bool centered = type == kQ4_0;
    if (!centered) {
        const uint fifths = uint(block.at[2 + d / 16]) >> d % 16;
        codes |= (fifths & 1) << 4 | (fifths & 2) << 11 | (fifths & 4) << 18 | (fifths & 8) << 25;
    }
    const vec4 bytes = vec4(codes & 255, codes >> 8 & 255, codes >> 16 & 255, codes >> 24);
    if (centered) return scale * (bytes - 8.0);
    return bytes * scale + HalvesOf(uint(block.at[1])).x;
}

// Elements [d, d + 4) of a row of `dims`, zeros beyond its end. d is a multiple of 4.
vec4 LoadFour(uint64_t row, uint type, uint d, uint dims) {
    if (d >= dims) return vec4(0);
    if (HasBlocks(type)) return FourOfBlock(Halves(row + d / 32 * BlockBytes(type)), type, d % 32);
    if (dims % 4 == 0) {
        if (type == kF32) return Quads(row).at[d / 4];
        const uvec2 words = Words2(row).at[d / 4];
        return FromHalves(type, words.x, words.y);
    }
    vec4 values = vec4(0);
    for (uint i = 0; i < 4 && d + i < dims; ++i) values[i] = LoadOne(row, type, d + i);
    return values;
}
