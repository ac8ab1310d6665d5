// Copies words to memory of the host, for a hand-over in the middle of a submission
// (backend/gpu/device/host_signal.h). A kernel does this, and not a copy command, so that an
// abandoned submission copies nothing while the host still reads (guard.glsl).
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    Ints x, y;
    uint count;
};

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) y.at[i] = x.at[i];
}
