// rms_norm, sum_squares, and the gradient of a norm's input, of any types. A workgroup processes
// one unit (a group of columns of a row) at a time:
//     s = 1 / sqrt(mean(x^2) + eps), y = x * s * weight
//     dx = s * (dy * weight - x * s^2 * mean(dy * weight * x))
// With `squares`, reads the sum of squares of the unit's row instead; then dx = s * dy * weight,
// and the unit's row of dsquares [units, squares_stride] is -s^3 / (2 whole) * sum(dy * weight * x)
// at `square`, else zeros. kSumSquares: writes that sum to y. kGrad: dx, and s of each unit if
// `inverse` is not 0. kInverse: only s. kMoments: writes the sum of x, and that sum, to y. kMatch:
// s is the root of the mean square of the row of dy over the unit's root, which counts as at least
// eps; a row of dy is for `weights` units. kEncodes: also writes y as codes (codes.glsl); a unit
// must then be a row. kCentered: subtracts the mean of the unit from x; dx also has the term -s *
// mean(dy * weight), and the units' means follow their s in `inverse`.
//
// kQuads: an invocation adds four columns at a time, else single ones. The order of a sum, and so
// its bits, depend on it: residual.comp, heads.comp and latent.comp give the bits of single
// columns.
#version 460
#include "element.glsl"
#include "norm.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kMode = 0;
layout(constant_id = 2) const uint kTypes = 0;  // of x, weight, dy, y
layout(constant_id = 3) const bool kWide = false;
layout(constant_id = 4) const bool kQuads = false;
layout(constant_id = 5) const bool kEncodes = false;
layout(constant_id = 6) const bool kCentered = false;
#include "encode_row.glsl"
layout(push_constant, scalar) uniform Args {
    uint64_t x, weight, dy, y;   // weight: 0 if absent
    Floats squares, inverse;     // 0 if absent
    uint64_t codes, scales;      // kEncodes: of y
    Floats dsquares;             // kGrad with `squares`
    uint units, cols, x_stride;  // x_stride: from one unit to the next
    uint squares_stride, y_stride;
    uint weights;      // units of a row, if each has weights of its own; else 1
    float whole, eps;  // whole: number of columns that the sum covers
    uint square;
};
const uint kForward = 0, kSumSquares = 1, kGrad = 2, kInverse = 3, kMoments = 4, kMatch = 5;
const uint kEach = kQuads ? 4 : 1;

vec4 ColumnsOf(uint64_t from, uint operand, uint64_t begin, uint column) {
    return LoadQuad(from, TypeIn(kTypes, operand), begin + column, min(kEach, cols - column),
                    kWide);
}
vec4 WeightOf(uint unit, uint column) {
    if (weight == 0) return vec4(1);
    return ColumnsOf(weight, 1, uint64_t(unit % weights) * cols, column);
}
// Columns of x without the mean; zeros beyond the last column.
vec4 CenteredOf(uint64_t begin, uint column, float center) {
    vec4 value = ColumnsOf(x, 0, begin, column);
    if (!kCentered) return value;
    [[unroll]] for (uint k = 0; k < 4; ++k) value[k] -= column + k < cols ? center : 0.0;
    return value;
}
// Adds in the order of columns.
float AddProducts(vec4 a, vec4 b, float sum) {
    precise float added = sum;
    [[unroll]] for (uint k = 0; k < kEach; ++k) added = fma(a[k], b[k], added);
    return added;
}

float CenterOf(uint64_t begin) {
    if (!kCentered) return 0.0;
    float all = 0.0;
    for (uint c = kEach * gl_LocalInvocationIndex; c < cols; c += kEach * gl_WorkGroupSize.x) {
        const vec4 value = ColumnsOf(x, 0, begin, c);
        [[unroll]] for (uint k = 0; k < kEach; ++k) all += value[k];
    }
    return SumOfGroup(all) / whole;
}

// Writes the results of a unit, which begins at element `begin` of x, in turns of kRowTurn columns.
void Finish(uint unit, uint64_t begin, float center, float s, float pull, float shift) {
    for (uint first = 0; first < cols; first += kRowTurn) {
        const uint count = min(kRowTurn, cols - first);
        for (uint at = kEach * gl_LocalInvocationIndex; at < count;
             at += kEach * gl_WorkGroupSize.x) {
            const uint c = first + at;
            const vec4 value = CenteredOf(begin, c, center);
            vec4 result;
            if (kMode != kGrad) {
                precise vec4 scaled = value * s;
                if (weight != 0) scaled = scaled * WeightOf(unit, c);
                result = scaled;
            } else {
                result = s * (ColumnsOf(dy, 2, begin, c) * WeightOf(unit, c) - value * pull);
                if (kCentered) result -= s * shift;
            }
            StoreQuad(y, TypeIn(kTypes, 3), begin + c, min(kEach, cols - c), kWide, result);
            if (kEncodes) encode_columns[at] = result.x;
        }
        if (kEncodes) EncodeTurn(codes, scales, uint(begin) + first, cols - first);
    }
}

// Keeps s and the mean of a unit for the gradient of the weight.
void Keep(uint unit, float s, float center) {
    if (uint64_t(inverse) == 0 || gl_LocalInvocationIndex != 0) return;
    inverse.at[unit] = s;
    if (kCentered) inverse.at[units + unit] = center;
}

// A unit of a row whose sum of squares is known.
void PartOfRow(uint unit, uint64_t begin) {
    const float s = InverseRms(squares.at[unit * squares_stride], whole, eps);
    Keep(unit, s, 0.0);
    if (kMode == kInverse) return;
    if (kMode == kGrad) {
        float along = 0;
        for (uint c = kEach * gl_LocalInvocationIndex; c < cols; c += kEach * gl_WorkGroupSize.x) {
            const vec4 slope = ColumnsOf(dy, 2, begin, c) * WeightOf(unit, c);
            along = AddProducts(slope, ColumnsOf(x, 0, begin, c), along);
        }
        along = SumOfGroup(along);
        for (uint i = gl_LocalInvocationIndex; i < squares_stride; i += gl_WorkGroupSize.x) {
            const float of_sum = -s * s * s * along / (2.0 * whole);
            dsquares.at[unit * squares_stride + i] = i == square ? of_sum : 0.0;
        }
    }
    Finish(unit, begin, 0.0, s, 0.0, 0.0);
}

void Unit(uint unit) {
    const uint64_t begin = uint64_t(unit) * x_stride;
    if (uint64_t(squares) != 0) {
        PartOfRow(unit, begin);
        return;
    }
    const float center = CenterOf(begin);
    const uint64_t like = uint64_t(unit / weights) * cols;
    float sum = 0, along = 0, slopes = 0;
    for (uint c = kEach * gl_LocalInvocationIndex; c < cols; c += kEach * gl_WorkGroupSize.x) {
        const vec4 value = CenteredOf(begin, c, center);
        sum = AddProducts(value, value, sum);
        if (kMode == kMoments) along = AddProducts(value, vec4(1), along);
        if (kMode == kMatch) {
            const vec4 target = ColumnsOf(dy, 2, like, c);
            along = AddProducts(target, target, along);
        }
        if (kMode != kGrad) continue;
        const vec4 slope = ColumnsOf(dy, 2, begin, c) * WeightOf(unit, c);
        along = AddProducts(slope, value, along);
        if (kCentered) slopes = AddProducts(slope, vec4(1), slopes);
    }
    sum = SumOfGroup(sum);
    if (kMode == kSumSquares) {
        if (gl_LocalInvocationIndex == 0) Floats(y).at[unit * y_stride] = sum;
        return;
    }
    if (kMode == kMoments || kMode == kMatch) along = SumOfGroup(along);
    if (kMode == kMoments) {
        if (gl_LocalInvocationIndex == 0) Floats(y).at[unit * y_stride] = along;
        if (gl_LocalInvocationIndex == 0) Floats(y).at[unit * y_stride + 1] = sum;
        return;
    }
    if (kMode == kMatch) {
        Finish(unit, begin, 0.0, sqrt(along / whole / max(sum / whole, eps)), 0.0,
               0.0);
        return;
    }
    const float s = InverseRms(sum, whole, eps);
    Keep(unit, s, center);
    if (kMode == kInverse) return;
    const float pull = kMode == kGrad ? s * s * SumOfGroup(along) / whole : 0.0;
    const float shift = kMode == kGrad && kCentered ? SumOfGroup(slopes) / whole : 0.0;
    Finish(unit, begin, center, s, pull, shift);
}

void main() {
    for (uint unit = gl_WorkGroupID.x; unit < units; unit += gl_NumWorkGroups.x) Unit(unit);
}
