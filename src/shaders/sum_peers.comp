// A sum over the ranks of a host, at the beginning of a submission (peers.glsl).
#version 460
#include "head.glsl"
#include "peers.glsl"

layout(push_constant, scalar) uniform Args {
    Windows windows;
    Floats sum;
    uint ranks, count;
};

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        sum.at[i] = SumOfWindows(windows, ranks, i);
    }
}
