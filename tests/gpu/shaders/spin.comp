#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
// One invocation runs `rounds` times `steps` steps of a generator: a slow kernel, in loops of at
// most 65,000 iterations.
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar) buffer Words { uint at[]; };
layout(push_constant, scalar) uniform Args {
    Words y;
    uint rounds;
    uint steps;
};
void main() {
    uint value = 1;
    for (uint i = 0; i < rounds; ++i) {
        for (uint j = 0; j < steps; ++j) value = value * 1664525u + 1013904223u;
    }
    y.at[gl_GlobalInvocationID.x] = value;
}
