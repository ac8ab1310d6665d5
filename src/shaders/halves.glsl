// Whether the driver's unpackHalf2x16 never flushes halves below 2^-14 to zero. (Vulkan's may,
// unless a mode keeps them: gpu/vulkan/small_halves.h.)
layout(constant_id = 34) const bool kKeepsSmallHalves = false;

// Converts two halves to floats, also those below 2^-14: block scales are often that small.
vec2 HalvesOf(uint two) {
    if (kKeepsSmallHalves) return unpackHalf2x16(two);
    const uvec2 bits = uvec2(two & 0xffffu, two >> 16), size = bits & 0x7fffu;
    const uvec2 normal = (size << 13) + mix(uvec2(0x38000000u), uvec2(0x70000000u),
                                            greaterThanEqual(size, uvec2(0x7c00u)));
    const uvec2 small = floatBitsToUint(vec2(size) * 5.9604645e-8);  // 2^-24
    const uvec2 magnitude = mix(normal, small, lessThan(size, uvec2(0x400u)));
    return uintBitsToFloat(magnitude | (bits & 0x8000u) << 16);
}
// Half i of a pair.
float HalfOf(uint two, uint i) { return HalvesOf(two >> 16 * i).x; }
