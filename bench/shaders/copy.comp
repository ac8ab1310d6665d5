#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_scalar_block_layout : require
// Measures the peak read and write speed of kernels with a copy. Each invocation loads several
// vectors before it stores one, so many loads are in flight.
const uint kInvocations = 256, kEach = 8, kBlock = kInvocations * kEach;
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vectors { vec4 at[]; };
layout(push_constant, scalar) uniform Args {
    Vectors x, y;
    uint count;  // vectors, a multiple of kBlock
};
void main() {
    for (uint block = gl_WorkGroupID.x; block < count / kBlock; block += gl_NumWorkGroups.x) {
        const uint first = block * kBlock + gl_LocalInvocationIndex;
        vec4 some[kEach];
        [[unroll]] for (uint i = 0; i < kEach; ++i) some[i] = x.at[first + i * kInvocations];
        [[unroll]] for (uint i = 0; i < kEach; ++i) y.at[first + i * kInvocations] = some[i];
    }
}
