// Converts float32 to 16 bits.
#ifndef NARROW_GLSL
#define NARROW_GLSL

// Rounds to nearest even, as tensor/half.h; returns the result in the low 16 bits.
uint ToF16(float value) {
    const uint bits = floatBitsToUint(value);
    const uint sign_bit = (bits >> 16) & 0x8000u;
    const uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign_bit | 0x7e00u;
    if (magnitude >= 0x477ff000u) return sign_bit | 0x7c00u;
    if (magnitude < 0x38800000u) {
        const float shifted = uintBitsToFloat(magnitude) + 0.5;
        return sign_bit | (floatBitsToUint(shifted) - 0x3f000000u);
    }
    const uint rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return sign_bit | ((rounded - 0x38000000u) >> 13);
}
uint ToBF16(float value) {
    const uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

#endif
