// Writes rows into a KV cache. The including file defines `float Source(uint row, uint head, uint
// d)`. Blocks have the bits of EncodeCacheBlock (kernels/cache_blocks.cc).
layout(constant_id = 1) const uint kType = 0;
uint ElementsOf(uint type) { return HasBlocks(type) ? 32 : 1; }  // written by one Store

// 1 / scale, or 0 for a scale of 0.
float InverseOf(float scale) { return scale == 0.0 ? 0.0 : Divide(1.0, scale); }
// x without its fraction, in [0, most]; 0 for NaN.
uint WholeOf(float x, float most) { return x > 0.0 ? uint(min(x, most)) : 0; }

void StoreQ8_0(Halves block, uint row, uint head, uint begin) {
    float largest = 0.0;
    for (uint i = 0; i < 32; ++i) {
        const float size = abs(Source(row, head, begin + i));
        largest = size > largest ? size : largest;
    }
    const float scale = Divide(largest, 127.0), inverse = InverseOf(scale);
    block.at[0] = uint16_t(ToF16(scale));
    for (uint i = 0; i < 32; i += 2) {
        uint both = 0;
        for (uint j = 0; j < 2; ++j) {
            const float value = RoundAway(Source(row, head, begin + i + j) * inverse);
            const int code = value > -127.0 ? int(min(value, 127.0)) : -127;
            both |= (uint(code) & 255u) << (8 * j);
        }
        block.at[1 + i / 2] = uint16_t(both);
    }
}

// Stores the codes (x - zero) * inverse + bias of a block, cut to [0, most]: nibbles from `at` on.
// Returns the fifth bits.
uint StoreCodes(Halves block, uint at, uint row, uint head, uint begin, float zero, float inverse,
                float bias, float most) {
    uint fifths = 0;
    for (uint i = 0; i < 16; i += 2) {
        uint both = 0;
        for (uint j = 0; j < 4; ++j) {
            const uint element = i + j % 2 + j / 2 * 16;
            precise float value = Source(row, head, begin + element) - zero;
            value = value * inverse;
            value = value + bias;
            const uint code = WholeOf(value, most);
            both |= (code & 15u) << (j % 2 * 8 + j / 2 * 4);
            fifths |= code >> 4 << element;
        }
        block.at[at + i / 2] = uint16_t(both);
    }
    return fifths;
}

void StoreQ4_0(Halves block, uint row, uint head, uint begin) {
    float peak = 0.0;
    for (uint i = 0; i < 32; ++i) {
        const float value = Source(row, head, begin + i);
        peak = abs(value) > abs(peak) ? value : peak;
    }
    const float scale = peak * -0.125;
    block.at[0] = uint16_t(ToF16(scale));
    StoreCodes(block, 1, row, head, begin, 0.0, InverseOf(scale), 8.5, 15.0);
}

void StoreQ5_1(Halves block, uint row, uint head, uint begin) {
    float least = 3.402823466e38, most = -least;
    for (uint i = 0; i < 32; ++i) {
        const float value = Source(row, head, begin + i);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    const float scale = Divide(most - least, 31.0);
    block.at[0] = uint16_t(ToF16(scale));
    block.at[1] = uint16_t(ToF16(least));
    const uint fifths =
        StoreCodes(block, 4, row, head, begin, least, InverseOf(scale), 0.5, 31.0);
    block.at[2] = uint16_t(fifths & 0xffffu);
    block.at[3] = uint16_t(fifths >> 16);
}

// Writes elements [d, d + ElementsOf(type)) of the cache row at `to`.
void Store(uint64_t to, uint type, uint row, uint head, uint d) {
    if (HasBlocks(type)) {
        Halves block = Halves(to + d / 32 * BlockBytes(type));
        if (type == kQ8_0) StoreQ8_0(block, row, head, d);
        if (type == kQ5_1) StoreQ5_1(block, row, head, d);
        if (type == kQ4_0) StoreQ4_0(block, row, head, d);
        bool has_nan = false;
        for (uint i = 0; i < 32; ++i) {
            const uint size = floatBitsToUint(Source(row, head, d + i)) & 0x7fffffffu;
            has_nan = has_nan || size > 0x7f800000u;
        }
        if (has_nan) block.at[0] = uint16_t(0x7e00);
    } else if (type == kF32) {
        Floats(to).at[d] = Source(row, head, d);
    } else {
        const float value = Source(row, head, d);
        Halves(to).at[d] = uint16_t(type == kF16 ? ToF16(value) : ToBF16(value));
    }
}

// The location of a step's row in a layer's cache: [page][kv_heads][page_tokens].
struct CacheSlot {
    uint page, place;
};
CacheSlot SlotOf(SequenceEntry sequence, Ints pages, uint row, uint page_tokens) {
    const uint position = uint(sequence.position) + row - uint(sequence.row_begin);
    const uint page = uint(pages.at[uint(sequence.first_page) + position / page_tokens]);
    return CacheSlot(page, position % page_tokens);
}
uint64_t AddressOf(uint64_t cache, uint type, CacheSlot slot, uint head, uint kv_heads,
                   uint page_tokens, uint head_dim) {
    const uint index = (slot.page * kv_heads + head) * page_tokens + slot.place;
    return cache + uint64_t(index) * RowBytes(type, head_dim);
}
