// Elements of values: float32, bfloat16 or float16 (kF32, kBF16, kF16), row-major without padding,
// at addresses aligned to their size. Arithmetic is float32; a store rounds to nearest even. A type
// is a specialization constant, so that each function compiles to one branch.
//
// A quad is four consecutive elements. If `wide`, its address is aligned to four elements, and it
// is one load or store. Stores never touch bytes outside their elements.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#include "floats.glsl"
#include "halves.glsl"

const uint kF32 = 0, kBF16 = 1, kF16 = 2;

layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer FloatQuad { vec4 all; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer HalfQuad { uvec2 all; };

// The type of a kernel's operand i, from a specialization constant with two bits per operand.
uint TypeIn(uint types, uint i) {
    return types >> (2 * i) & 3u;
}

// Tests the bits, because a driver's exp and isnan may treat NaN arbitrarily.
bool IsNan(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

float Load(uint64_t from, uint type, uint64_t i) {
    if (type == kF32) return Floats(from + i * 4).at[0];
    const uint bits = uint(Halves(from + i * 2).at[0]);
    return type == kBF16 ? uintBitsToFloat(bits << 16) : HalvesOf(bits).x;
}
void Store(uint64_t to, uint type, uint64_t i, float value) {
    if (type == kF32) {
        Floats(to + i * 4).at[0] = value;
    } else {
        Halves(to + i * 2).at[0] = uint16_t(type == kBF16 ? ToBF16(value) : ToF16(value));
    }
}

// Four elements of 16 bits.
vec4 WidenFour(uint type, uvec2 two) {
    if (type == kF16) return vec4(HalvesOf(two.x), HalvesOf(two.y));
    return uintBitsToFloat(
        uvec4(two.x << 16, two.x & 0xffff0000u, two.y << 16, two.y & 0xffff0000u));
}
uvec2 NarrowFour(uint type, vec4 quad) {
    if (type == kBF16) {
        return uvec2(ToBF16(quad.x) | ToBF16(quad.y) << 16, ToBF16(quad.z) | ToBF16(quad.w) << 16);
    }
    return uvec2(ToF16(quad.x) | ToF16(quad.y) << 16, ToF16(quad.z) | ToF16(quad.w) << 16);
}

// left: number of elements from i on; if it is less than four, the rest of the quad loads as zeros.
vec4 LoadQuad(uint64_t from, uint type, uint64_t i, uint left, bool wide) {
    if (wide && left >= 4) {
        if (type == kF32) return FloatQuad(from + i * 4).all;
        return WidenFour(type, HalfQuad(from + i * 2).all);
    }
    vec4 quad = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (k < left) quad[k] = Load(from, type, i + k);
    }
    return quad;
}
void StoreQuad(uint64_t to, uint type, uint64_t i, uint left, bool wide, vec4 quad) {
    if (wide && left >= 4) {
        if (type == kF32) {
            FloatQuad(to + i * 4).all = quad;
        } else {
            HalfQuad(to + i * 2).all = NarrowFour(type, quad);
        }
        return;
    }
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (k < left) Store(to, type, i + k, quad[k]);
    }
}
