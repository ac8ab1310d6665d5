// rms_norm of any types, and the gradient of its input. A workgroup processes a group of columns,
// which is a row of the units [units, cols]:
//     s = 1 / sqrt(mean(x^2) + eps), y = x * s * weight
//     dx = s * (dy * weight - x * s^2 * mean(dy * weight * x))
// kGrad also writes s of each unit, if `inverse` is not 0; kInverse writes only s.
#version 460
#include "element.glsl"
#include "norm.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kMode = 0;
layout(constant_id = 2) const uint kTypes = 0;  // of x, weight, dy, y
layout(constant_id = 3) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t x, weight, dy, y;  // weight: 0 if absent
    Floats inverse;
    uint units, cols;
    float eps;
};
const uint kForward = 0, kGrad = 1, kInverse = 2;

vec4 QuadOf(uint64_t from, uint operand, uint64_t begin, uint column) {
    return LoadQuad(from, TypeIn(kTypes, operand), begin + column, cols - column, kWide);
}
vec4 WeightOf(uint column) {
    return weight == 0 ? vec4(1) : QuadOf(weight, 1, 0, column);
}
// Adds in the order of columns.
float AddProducts(vec4 a, vec4 b, float sum) {
    precise float added = sum;
    [[unroll]] for (uint k = 0; k < 4; ++k) added = fma(a[k], b[k], added);
    return added;
}

void Unit(uint unit) {
    const uint64_t begin = uint64_t(unit) * cols;
    const uint first = 4 * gl_LocalInvocationIndex, stride = 4 * gl_WorkGroupSize.x;
    float squares = 0, along = 0;
    for (uint c = first; c < cols; c += stride) {
        const vec4 value = QuadOf(x, 0, begin, c);
        squares = AddProducts(value, value, squares);
        if (kMode == kGrad) along = AddProducts(QuadOf(dy, 2, begin, c) * WeightOf(c), value, along);
    }
    const float s = InverseRms(SumOfGroup(squares), float(cols), eps);
    if (kMode != kForward && uint64_t(inverse) != 0 && gl_LocalInvocationIndex == 0) {
        inverse.at[unit] = s;
    }
    if (kMode == kInverse) return;
    const float pull = kMode == kGrad ? s * s * SumOfGroup(along) / float(cols) : 0;
    for (uint c = first; c < cols; c += stride) {
        const vec4 value = QuadOf(x, 0, begin, c);
        const vec4 result = kMode == kForward
            ? value * s * WeightOf(c)
            : s * (QuadOf(dy, 2, begin, c) * WeightOf(c) - value * pull);
        StoreQuad(y, TypeIn(kTypes, 3), begin + c, cols - c, kWide, result);
    }
}

void main() {
    for (uint unit = gl_WorkGroupID.x; unit < units; unit += gl_NumWorkGroups.x) Unit(unit);
}
