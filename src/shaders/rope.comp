// rope: rotates pairs of 2 * pairs dims of each head, its first ones or its last ones, by position
// * inverse frequency, and copies the other dims, of any types. Workgroup (rows, columns). An
// invocation handles a pair, or a single other dim; with kWide, four pairs of halves, two pairs of neighbors, or four
// dims.
#version 460
#include "element.glsl"
#include "rope.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of x, y
layout(constant_id = 2) const bool kWide = false;
layout(constant_id = 3) const bool kNeighbours = false;
layout(push_constant, scalar) uniform Args {
    uint64_t x, y;
    Ints positions;
    Angles fine, coarse;  // cosine and sine: [256, pairs], [_, pairs]
    uint rows, heads, head_dim, pairs;
    float sign_of_sine;
    uint first;   // rotated dim of a head: 0, or, without kWide, the number of dims before the last
    uint behind;  // the angle at max(0, position - behind)
};

vec2 Turn(vec2 pair, uint position, uint i) {
    const vec2 angle = AngleOf(fine, coarse, position, pairs, i);
    return Rotate(pair, vec2(angle.x, sign_of_sine * angle.y));
}
vec4 In(uint64_t i) {
    return LoadQuad(x, TypeIn(kTypes, 0), i, 4, true);
}
void Out(uint64_t i, vec4 quad) {
    StoreQuad(y, TypeIn(kTypes, 1), i, 4, true, quad);
}

// begin: first element of the head. Unit i of a head is pair i, or one of the other dims.
void One(uint64_t begin, uint unit, uint position) {
    const uint from = TypeIn(kTypes, 0), to = TypeIn(kTypes, 1);
    if (unit >= pairs) {
        const uint64_t other = begin + unit + (first != 0 ? 0 : 2 * pairs) - pairs;
        Store(y, to, other, Load(x, from, other));
        return;
    }
    const uint64_t at = begin + first + (kNeighbours ? 2 * unit : unit);
    const uint64_t other = at + (kNeighbours ? 1 : pairs);
    const vec2 turned = Turn(vec2(Load(x, from, at), Load(x, from, other)), position, unit);
    Store(y, to, at, turned.x);
    Store(y, to, other, turned.y);
}
void Four(uint64_t begin, uint unit, uint position) {
    const uint i = 4 * unit;
    if (kNeighbours ? i >= 2 * pairs : i >= pairs) {
        const uint64_t at = begin + i + (kNeighbours ? 0 : pairs);
        Out(at, In(at));
    } else if (kNeighbours) {
        const vec4 quad = In(begin + i);
        Out(begin + i, vec4(Turn(quad.xy, position, i / 2), Turn(quad.zw, position, i / 2 + 1)));
    } else {
        vec4 first = In(begin + i), second = In(begin + pairs + i);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            const vec2 turned = Turn(vec2(first[k], second[k]), position, i + k);
            first[k] = turned.x;
            second[k] = turned.y;
        }
        Out(begin + i, first);
        Out(begin + pairs + i, second);
    }
}

void main() {
    const uint dims = kWide && kNeighbours ? head_dim : head_dim - pairs;
    const uint units = kWide ? dims / 4 : dims;  // per head
    const uint i = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (i >= heads * units) return;
    const uint head = i / units, unit = i % units;
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        const uint64_t begin = (uint64_t(row) * heads + head) * head_dim;
        const uint position = uint(max(positions.at[row] - int(behind), 0));
        if (kWide) {
            Four(begin, unit, position);
        } else {
            One(begin, unit, position);
        }
    }
}
