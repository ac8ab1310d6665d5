// rope: rotates pairs of each head's first 2 * pairs dims by position * inverse frequency; the other
// dims are copied. Workgroup (piece of a row's heads, row).
//
// The angle of position p is that of p / 256 * 256 and that of p % 256, added: cosines and sines of
// both are tables that the host made in float64. A GPU's own sine may be off by 2^-11.
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Angles { vec2 at[]; };
layout(push_constant, scalar) uniform Args {
    Floats x, y;
    Ints positions;
    Angles fine, coarse;  // cosine and sine: [256, pairs], [_, pairs]
    uint heads, head_dim, pairs;
    uint step, apart;  // from a pair to the next, from a pair's first to its second
    float sign_of_sine;
};

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint units = head_dim - pairs;  // pairs and single dims of a head
    const uint position = uint(positions.at[row]);
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < heads * units; i += stride) {
        const uint unit = i % units;
        const uint begin = (row * heads + i / units) * head_dim;
        if (unit >= pairs) {
            y.at[begin + pairs + unit] = x.at[begin + pairs + unit];
            continue;
        }
        const vec2 a = coarse.at[position / 256 * pairs + unit];
        const vec2 b = fine.at[position % 256 * pairs + unit];
        const float cosine = fma(a.x, b.x, -(a.y * b.y));
        const float sine = sign_of_sine * fma(a.y, b.x, a.x * b.y);
        const uint at = begin + unit * step;
        const float first = x.at[at], second = x.at[at + apart];
        y.at[at] = fma(first, cosine, -(second * sine));
        y.at[at + apart] = fma(second, cosine, first * sine);
    }
}
