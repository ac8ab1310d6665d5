#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
// Measures the peak float32 multiply-add rate: chains of fused multiply-adds, enough of them in
// parallel to hide their latency.
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar) buffer Floats { float at[]; };
layout(push_constant, scalar) uniform Args {
    Floats y;
    uint steps;  // at most 65,000
    float factor;
};
void main() {
    vec4 a = vec4(gl_GlobalInvocationID.x), b = a + 1, c = a + 2, d = a + 3;
    for (uint i = 0; i < steps; ++i) {
        a = fma(a, vec4(factor), vec4(0.5));
        b = fma(b, vec4(factor), vec4(0.5));
        c = fma(c, vec4(factor), vec4(0.5));
        d = fma(d, vec4(factor), vec4(0.5));
    }
    const vec4 sum = a + b + c + d;
    y.at[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
