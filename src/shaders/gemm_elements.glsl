// Elements of float32, bfloat16 and float16 at device addresses, as float32. The type is a
// specialization constant, so that each function compiles to one branch. float16 is converted with
// integers, since drivers may flush its subnormals. Loops over tails are not unrolled, since a
// driver compiles many variants of them.
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#include "halves.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Shorts { uint16_t at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vectors { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words4 { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Words2 { uvec2 at[]; };

const uint kF32 = 0, kBF16 = 1, kF16 = 2;

uint BytesOf(uint type) { return type == kF32 ? 4 : 2; }

float RoundToBF16(float value) { return uintBitsToFloat(ToBF16(value) << 16); }

vec2 WidenTwo(uint type, uint two) {
    if (type == kF16) return HalvesOf(two);
    return uintBitsToFloat(uvec2(two << 16, two & 0xffff0000u));
}
uint NarrowTwo(uint type, vec2 two) {
    if (type == kF16) return ToF16(two.x) | ToF16(two.y) << 16;
    return ToBF16(two.x) & 0xffffu | ToBF16(two.y) << 16;
}

float Load(uint type, uint64_t at) {
    if (type == kF32) return Floats(at).at[0];
    return WidenTwo(type, uint(Shorts(at).at[0])).x;
}
void Store(uint type, uint64_t at, float value) {
    if (type == kF32) {
        Floats(at).at[0] = value;
    } else {
        Shorts(at).at[0] = uint16_t(NarrowTwo(type, vec2(value, 0)) & 0xffffu);
    }
}

struct Eight { vec4 low, high; };

// Elements [first, first + 8) of a row, zeros from `end` on. aligned: the row is aligned to 16
// bytes and `first` is a multiple of 8.
Eight LoadEight(uint type, bool aligned, uint64_t row, uint first, uint end) {
    Eight eight = Eight(vec4(0), vec4(0));
    if (first >= end) return eight;
    const uint64_t at = row + uint64_t(first) * BytesOf(type);
    if (aligned && end - first >= 8) {
        if (type == kF32) return Eight(Vectors(at).at[0], Vectors(at).at[1]);
        const uvec4 words = Words4(at).at[0];
        eight.low = vec4(WidenTwo(type, words.x), WidenTwo(type, words.y));
        eight.high = vec4(WidenTwo(type, words.z), WidenTwo(type, words.w));
        return eight;
    }
    const uint count = min(end - first, 8);
    [[dont_unroll]] for (uint i = 0; i < count; ++i) {
        const float value = Load(type, at + i * BytesOf(type));
        if (i < 4) {
            eight.low[i] = value;
        } else {
            eight.high[i - 4] = value;
        }
    }
    return eight;
}

// Stores elements [first, first + 4) of a row, up to `end`: = value, or += value if `adds`.
// aligned: as above, with a multiple of 4.
void StoreFour(uint type, bool aligned, bool adds, uint64_t row, uint first, uint end, vec4 value) {
    if (first >= end) return;
    const uint64_t at = row + uint64_t(first) * BytesOf(type);
    if (aligned && end - first >= 4) {
        if (type == kF32) {
            Vectors(at).at[0] = adds ? Vectors(at).at[0] + value : value;
            return;
        }
        if (adds) {
            const uvec2 old = Words2(at).at[0];
            value += vec4(WidenTwo(type, old.x), WidenTwo(type, old.y));
        }
        Words2(at).at[0] = uvec2(NarrowTwo(type, value.xy), NarrowTwo(type, value.zw));
        return;
    }
    const uint count = min(end - first, 4);
    [[dont_unroll]] for (uint i = 0; i < count; ++i) {
        const uint64_t place = at + i * BytesOf(type);
        Store(type, place, adds ? Load(type, place) + value[i] : value[i]);
    }
}
