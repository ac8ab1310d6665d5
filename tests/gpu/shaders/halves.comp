// Converts every half to a float: word i of the result is that of half i.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x_id = 0) in;
#include "halves.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer Words { uint at[]; };
layout(push_constant, scalar) uniform Args { Words result; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    result.at[i] = floatBitsToUint(HalfOf(i << 16, 1));
}
