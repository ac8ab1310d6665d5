// Writes rows into a KV cache at their positions. Workgroup (piece of a row, row, which): of
// attention, `which` 0 writes k, 1 writes v; of latent attention (specialization constant 2) a row is
// the latent and behind it the key.
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kType = 0;
layout(constant_id = 2) const bool kLatent = false;
layout(push_constant, scalar) uniform Args {
    Floats k, v;
    uint64_t k_cache, v_cache;
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint kv_heads, head_dim, page_tokens;
    uint latent;  // elements of the latent
};

Floats source;

float Source(uint row, uint head, uint d) {
    if (!kLatent) return source.at[(row * kv_heads + head) * head_dim + d];
    return d < latent ? k.at[row * latent + d] : v.at[row * (head_dim - latent) + d - latent];
}

// As tensor/quant.h: the largest magnitude is 127; a NaN becomes -127.
void WriteBlock(Halves block, uint row, uint head, uint begin) {
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

void main() {
    const uint row = gl_WorkGroupID.y;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint position = uint(sequence.position) + row - uint(sequence.row_begin);
    const uint page = uint(pages.at[uint(sequence.first_page) + position / page_tokens]);
    const bool second = gl_WorkGroupID.z == 1;
    source = second ? v : k;
    const uint64_t cache = second ? v_cache : k_cache;
    const uint each = kType == kQ8_0 ? 32 : 1;
    const uint units = head_dim / each;
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < kv_heads * units; i += stride) {
        const uint head = i / units, d = i % units * each;
        const uint slot = (page * kv_heads + head) * page_tokens + position % page_tokens;
        const uint64_t to = cache + uint64_t(slot) * RowBytes(kType, head_dim);
        if (kType == kQ8_0) {
            WriteBlock(Halves(to + d / 32 * kBlockBytes), row, head, d);
        } else if (kType == kF32) {
            Floats(to).at[d] = Source(row, head, d);
        } else {
            const float value = Source(row, head, d);
            Halves(to).at[d] = uint16_t(kType == kF16 ? ToF16(value) : ToBF16(value));
        }
    }
}
