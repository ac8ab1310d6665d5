// Elements of the operands of gemm.comp. Loops over tails are not unrolled, since a driver compiles
// many variants of them.
#include "element.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words4 { uvec4 at[]; };

uint BytesOf(uint type) { return type == kF32 ? 4 : 2; }

struct Eight { vec4 low, high; };

// Elements [first, first + 8) of a row, zeros from `end` on. aligned: the row is aligned to 16
// bytes and `first` is a multiple of 8.
Eight LoadEight(uint type, bool aligned, uint64_t row, uint first, uint end) {
    Eight eight = Eight(vec4(0), vec4(0));
    if (first >= end) return eight;
    if (aligned && end - first >= 8) {
        if (type == kF32) {
            return Eight(LoadQuad(row, type, first, 4, true),
                         LoadQuad(row, type, first + 4, 4, true));
        }
        const uvec4 words = Words4(row + uint64_t(first) * 2).at[0];
        return Eight(WidenFour(type, words.xy), WidenFour(type, words.zw));
    }
    const uint count = min(end - first, 8);
    [[dont_unroll]] for (uint i = 0; i < count; ++i) {
        const float value = Load(row, type, first + i);
        if (i < 4) {
            eight.low[i] = value;
        } else {
            eight.high[i - 4] = value;
        }
    }
    return eight;
}

// Stores elements [first, first + 4) of a row, up to `end`: = value, or += value if `adds`.
// aligned: the row is aligned to 16 bytes and `first` is a multiple of 4.
void StoreFour(uint type, bool aligned, bool adds, uint64_t row, uint first, uint end, vec4 value) {
    if (first >= end) return;
    if (aligned && end - first >= 4) {
        if (adds) value += LoadQuad(row, type, first, 4, true);
        StoreQuad(row, type, first, 4, true, value);
        return;
    }
    const uint count = min(end - first, 4);
    [[dont_unroll]] for (uint i = 0; i < count; ++i) {
        Store(row, type, first + i, adds ? Load(row, type, first + i) + value[i] : value[i]);
    }
}
