// Sets C to the sum of its partial sums (gemm.comp), or adds that sum to C. Partial sums are
// float32 [parts, m, n] and are added in order. An invocation per element.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypeC = 0;

layout(push_constant, scalar) uniform Args {
    uint64_t partial, c;
    uint m, n, c_stride, parts, accumulate;
} a;

void main() {
    const uint count = a.m * a.n, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        float sum = 0;
        for (uint part = 0; part < a.parts; ++part) {
            sum += Floats(a.partial + uint64_t(part) * count * 4).at[i];
        }
        const uint64_t at = uint64_t(i / a.n) * a.c_stride + i % a.n;
        Store(a.c, kTypeC, at, a.accumulate != 0 ? Load(a.c, kTypeC, at) + sum : sum);
    }
}
