// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight over groups of columns: workgroup (group, row).
// With `squares`, reads the sum of squares instead. sum_squares (specialization constant 1): writes
// that sum to y, for columns of rows. kEncodes: also writes y as codes (codes.glsl); a group must
// then be a row. kCentered: subtracts the mean of the group from x.
#version 460
#include "floats.glsl"
#include "norm.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kSumSquares = false;
layout(constant_id = 2) const bool kEncodes = false;
layout(constant_id = 3) const bool kCentered = false;
#include "encode_row.glsl"
layout(push_constant, scalar) uniform Args {
    Floats x, weight, squares, y;  // weight, squares: 0 if absent
    uint64_t codes, scales;        // kEncodes: of y
    uint x_stride, cols;           // cols: per group
    uint squares_stride, y_stride;
    float whole, eps;  // whole: number of columns that the sum covers
    uint weight_step;  // distance between the weights of groups; 0: all groups share them
};

void Scale(uint begin, float center, float scale) {
    const bool plain = uint64_t(weight) == 0;
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    for (uint first = 0; first < cols; first += kRowTurn) {
        for (uint at = lane; at < min(kRowTurn, cols - first); at += lanes) {
            const uint i = first + at;
            precise float value = (x.at[begin + i] - center) * scale;
            if (!plain) value = value * weight.at[gl_WorkGroupID.x * weight_step + i];
            y.at[begin + i] = value;
            if (kEncodes) encode_columns[at] = value;
        }
        if (kEncodes) EncodeTurn(codes, scales, begin + first, cols - first);
    }
}

void main() {
    const uint row = gl_WorkGroupID.y;
    const uint begin = row * x_stride + gl_WorkGroupID.x * cols;
    if (uint64_t(squares) != 0) {
        Scale(begin, 0.0, InverseRms(squares.at[row * squares_stride], whole, eps));
        return;
    }
    float center = 0.0;
    if (kCentered) {
        float all = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < cols; i += gl_WorkGroupSize.x) {
            all += x.at[begin + i];
        }
        center = SumOfGroup(all) / whole;
    }
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < cols; i += gl_WorkGroupSize.x) {
        const float value = x.at[begin + i] - center;
        sum = fma(value, value, sum);
    }
    sum = SumOfGroup(sum);
    if (!kSumSquares) {
        Scale(begin, center, InverseRms(sum, whole, eps));
    } else if (gl_LocalInvocationIndex == 0) {
        y.at[row * y_stride] = sum;
    }
}
