// Encodes floats as int8, 32 at a time: code = round(x * 127 / peak), to nearest even, scale = peak
// / 127, where peak is the largest magnitude of the 32. dot.glsl has the layout. The including file
// declares its workgroup size, a multiple of 8, and kEncodes: whether it calls these functions.
//
// If one of the 32 is NaN or infinite, the scale is NaN, and so is every sum with it. A peak below
// 2^-100 counts as zero, which changes a value by less than that.
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer CodeWords {
    uint at[];
};
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer BlockScales {
    uvec2 at[];
};

const uint kBlockLanes = 8;  // invocations per block
shared uint encode_parts[kEncodes ? gl_WorkGroupSize.x : 1];

// Encodes x, columns [4 four, 4 four + 4) of all rows. All invocations of the workgroup must call
// it. Eight consecutive invocations have one block; all eight are `inside`, or none is.
void Encode(uint64_t codes, uint64_t scales, uint lane, uint four, vec4 x, bool inside) {
    const uint head = lane / kBlockLanes * kBlockLanes;
    // Bits of magnitudes, compared as integers, have the order of the floats, and NaN is the
    // largest.
    const uvec4 size = floatBitsToUint(x) & 0x7fffffffu;
    encode_parts[lane] = max(max(size.x, size.y), max(size.z, size.w));
    barrier();
    uint most = 0;
    [[unroll]] for (uint i = 0; i < kBlockLanes; ++i) most = max(most, encode_parts[head + i]);
    barrier();
    const bool finite = most < 0x7f800000u, zero = most < 0x0d800000u;
    const precise float peak = uintBitsToFloat(finite && !zero ? most : 0x3f800000u);
    // Above 2^126, a GPU may divide to zero (precision of a / b in GLSL), so the peak is divided by
    // 4.
    const float quarter = finite && most > 0x7e800000u ? 0.25 : 1.0;
    const precise float inverse = zero || !finite ? 0.0 : quarter * (127.0 / (quarter * peak));
    const precise vec4 scaled = x * inverse;
    const ivec4 code = finite ? clamp(ivec4(roundEven(scaled)), -127, 127) : ivec4(0);
    encode_parts[lane] = uint(code.x + code.y + code.z + code.w);
    barrier();
    if (inside) {
        const uvec4 bytes = uvec4(code) & 255;
        CodeWords(codes).at[four] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
    }
    if (inside && lane == head) {
        int low = 0, high = 0;
        [[unroll]] for (uint i = 0; i < kBlockLanes / 2; ++i) {
            low += int(encode_parts[head + i]);
            high += int(encode_parts[head + kBlockLanes / 2 + i]);
        }
        const precise float scale = peak / 127.0;
        const uint bits = !finite ? 0x7fc00000u : zero ? 0 : floatBitsToUint(scale);
        BlockScales(scales).at[four / kBlockLanes] =
            uvec2(bits, uint(low) & 0xffff | uint(high) << 16);
    }
    barrier();
}
