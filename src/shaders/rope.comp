// rope: rotates pairs of each head's first 2 * pairs dims by position * inverse frequency, and
// copies the other dims. Workgroup (columns, row).
#version 460
#include "floats.glsl"
#include "rope.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats x, y;
    Ints positions;
    Angles fine, coarse;  // cosine and sine: [256, pairs], [_, pairs]
    uint heads, head_dim, pairs;
    uint step, apart;  // from one pair to the next; from a pair's first element to its second
    float sign_of_sine;
};

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint units = head_dim - pairs;  // pairs and single dims per head
    const uint position = uint(positions.at[row]);
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < heads * units; i += stride) {
        const uint unit = i % units;
        const uint begin = (row * heads + i / units) * head_dim;
        if (unit >= pairs) {
            y.at[begin + pairs + unit] = x.at[begin + pairs + unit];
            continue;
        }
        const vec2 angle = AngleOf(fine, coarse, position, pairs, unit);
        const uint at = begin + unit * step;
        const vec2 turned =
            Rotate(vec2(x.at[at], x.at[at + apart]), vec2(angle.x, sign_of_sine * angle.y));
        y.at[at] = turned.x;
        y.at[at + apart] = turned.y;
    }
}
