#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
// y[i] = x[i] * factor + kAdd: tests that arguments, constants and addresses reach a kernel.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kAdd = 0;
layout(buffer_reference, scalar) buffer Words { uint at[]; };
layout(push_constant, scalar) uniform Args {
    Words x;
    Words y;
    uint count;
    uint factor;
};
void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < count) y.at[i] = x.at[i] * factor + kAdd;
}
