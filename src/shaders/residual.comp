//: residual
//: sum_residual -DSUM
// The steps between the last product of a block and the next block's first products, in one kernel;
// each part (constant 1) is optional:
//
//     y = (x + (m + bias -> norm) * factor) * sum_factor,    out = norm of y
//
// for row r or row rows[r]; y or out also as codes (codes.glsl). Workgroup (1, row). Gives the bits
// of map.comp and norm.comp with a workgroup of the same size. SUM: for one row, whose m is the sum
// over ranks of `part` (exchange.glsl) and is also written.
#version 460
#include "floats.glsl"
#include "norm.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kParts = 0;  // ResidualParts of lower/fused.cc
#ifdef SUM
#include "exchange.glsl"
#define cols count
#endif
layout(push_constant, scalar) uniform Args {
#ifdef SUM
    EXCHANGE_ARGS
#else
    Ints rows;
#endif
    Floats m, x, bias, weight, next_weight;
    Floats y, result;
    uint64_t codes, scales;  // of y or of result
    float factor, sum_factor;
    float eps, next_eps;
#ifndef SUM
    uint cols;
#endif
};

const uint kBias = 1, kNorm = 2, kNormWeight = 4, kFactor = 8, kSumFactor = 16;
const uint kNext = 32, kNextWeight = 64, kRows = 128;
const uint kEncodesSum = 256, kEncodesNext = 512;
const bool kEncodes = (kParts & (kEncodesSum | kEncodesNext)) != 0;
#include "encode_row.glsl"

bool Has(uint part) {
    return (kParts & part) != 0;
}

float Before(uint begin, uint i) {
    precise float value = m.at[begin + i];
    if (Has(kBias)) value = value + bias.at[i];
    return value;
}

float ScaleBefore(uint begin) {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < cols; i += gl_WorkGroupSize.x) {
        const float value = Before(begin, i);
        sum = fma(value, value, sum);
    }
    return InverseRms(SumOfGroup(sum), float(cols), eps);
}

float Sum(uint from, uint i, float scale) {
    precise float value = Before(from, i);
    if (Has(kNorm)) value = value * scale;
    if (Has(kNormWeight)) value = value * weight.at[i];
    if (Has(kFactor)) value = factor * value;
    value = x.at[from + i] + value;
    if (Has(kSumFactor)) value = sum_factor * value;
    return value;
}

// Row of m and x. With SUM there is one row, and an invocation reads only its own writes of m.
uint FirstOf(uint row) {
#ifdef SUM
    return 0;
#else
    return (Has(kRows) ? uint(rows.at[row]) : row) * cols;
#endif
}

void main() {
#ifdef SUM
    if (!Exchange(gate, part, to_host, from_host, count, index, m)) return;
#endif
    const uint row = gl_WorkGroupID.y, begin = row * cols;
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    const uint from = FirstOf(row);
    const float scale = Has(kNorm) ? ScaleBefore(from) : 1.0;
    float sum = 0.0;
    for (uint first = 0; first < cols; first += kRowTurn) {
        for (uint at = lane; at < min(kRowTurn, cols - first); at += lanes) {
            const float value = Sum(from, first + at, scale);
            y.at[begin + first + at] = value;
            sum = fma(value, value, sum);
            if (Has(kEncodesSum)) encode_columns[at] = value;
        }
        if (Has(kEncodesSum)) EncodeTurn(codes, scales, begin + first, cols - first);
    }
    if (!Has(kNext)) return;
    const float next = InverseRms(SumOfGroup(sum), float(cols), next_eps);
    for (uint first = 0; first < cols; first += kRowTurn) {
        for (uint at = lane; at < min(kRowTurn, cols - first); at += lanes) {
            const uint i = first + at;
            precise float value = y.at[begin + i] * next;
            if (Has(kNextWeight)) value = value * next_weight.at[i];
            result.at[begin + i] = value;
            if (Has(kEncodesNext)) encode_columns[at] = value;
        }
        if (Has(kEncodesNext)) EncodeTurn(codes, scales, begin + first, cols - first);
    }
}
