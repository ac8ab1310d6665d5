// Writes rows into a KV cache. The including file defines `float Source(uint row, uint head, uint
// d)`.
layout(constant_id = 1) const uint kType = 0;
const uint kElements = kType == kQ8_0 ? 32 : 1;  // written by one Store

// As tensor/quant.h: the largest magnitude maps to 127; a NaN becomes -127.
void StoreBlock(Halves block, uint row, uint head, uint begin) {
    float largest = 0.0;
    for (uint i = 0; i < 32; ++i) {
        const float size = abs(Source(row, head, begin + i));
        largest = size > largest ? size : largest;
    }
    const float scale = Divide(largest, 127.0);
    const float inverse = scale == 0.0 ? 0.0 : Divide(1.0, scale);
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

// Writes elements [d, d + kElements) of the cache row at `to`.
void Store(uint64_t to, uint row, uint head, uint d) {
    if (kType == kQ8_0) {
        StoreBlock(Halves(to + d / 32 * kBlockBytes), row, head, d);
    } else if (kType == kF32) {
        Floats(to).at[d] = Source(row, head, d);
    } else {
        const float value = Source(row, head, d);
        Halves(to).at[d] = uint16_t(kType == kF16 ? ToF16(value) : ToBF16(value));
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
uint64_t AddressOf(uint64_t cache, CacheSlot slot, uint head, uint kv_heads, uint page_tokens,
                   uint head_dim) {
    const uint index = (slot.page * kv_heads + head) * page_tokens + slot.place;
    return cache + uint64_t(index) * RowBytes(kType, head_dim);
}
