// Writes rows into a KV cache at their positions. Workgroup (columns, row, which). For attention,
// `which` 0 writes k, 1 writes v; for latent attention (specialization constant 2), a row is the
// latent followed by the key.
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 2) const bool kLatent = false;
layout(constant_id = 3) const uint kValueType = 0;  // of v_cache; kType: of k_cache
layout(constant_id = 4) const uint kStride = 1;     // only rows that end a window are written
layout(push_constant, scalar) uniform Args {
    Floats k, v;
    uint64_t k_cache, v_cache;
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint kv_heads, head_dim, page_tokens;  // page_tokens: rows of a page
    uint latent;  // elements of the latent
};

Floats source;

float Source(uint row, uint head, uint d) {
    if (!kLatent) return source.at[(row * kv_heads + head) * head_dim + d];
    return d < latent ? k.at[row * latent + d] : v.at[row * (head_dim - latent) + d - latent];
}

#include "cache_rows.glsl"

void main() {
    const uint row = gl_WorkGroupID.y;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    if ((uint(sequence.position) + row - uint(sequence.row_begin) + 1) % kStride != 0) return;
    CacheSlot slot = SlotOf(sequence, pages, row, page_tokens * RowPositions(kStride));
    slot.place /= RowPositions(kStride);
    const bool second = gl_WorkGroupID.z == 1;
    source = second ? v : k;
    const uint64_t cache = second ? v_cache : k_cache;
    const uint type = kType == kValueType || !second ? kType : kValueType;
    const uint elements = ElementsOf(type), units = head_dim / elements;
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < kv_heads * units; i += stride) {
        const uint head = i / units;
        const uint64_t to = AddressOf(cache, type, slot, head, kv_heads, page_tokens, head_dim);
        Store(to, type, row, head, i % units * elements);
    }
}
