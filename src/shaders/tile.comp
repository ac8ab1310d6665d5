//: tile_f32 -DF32
//: tile_f16 -DF16
//: tile_bf16 -DBF16
//: tile_q4_0 -DQ4_0
//: tile_q4_1 -DQ4_1
//: tile_q5_0 -DQ5_0
//: tile_q5_1 -DQ5_1
//: tile_q8_0 -DQ8_0
//: tile_q2_k -DQ2_K
//: tile_q3_k -DQ3_K
//: tile_q4_k -DQ4_K
//: tile_q5_k -DQ5_K
//: tile_q6_k -DQ6_K
//: tile_iq1_s -DIQ1_S
//: tile_iq1_m -DIQ1_M
//: tile_iq2_xxs -DIQ2_XXS
//: tile_iq2_xs -DIQ2_XS
//: tile_iq2_s -DIQ2_S
//: tile_iq3_xxs -DIQ3_XXS
//: tile_iq3_s -DIQ3_S
//: tile_iq4_nl -DIQ4_NL
//: tile_iq4_xs -DIQ4_XS
//: tile_tq1_0 -DTQ1_0
//: tile_tq2_0 -DTQ2_0
//: tile_mxfp4 -DMXFP4
//: tile_w4 -DW4
//: tile_w8 -DW8
//: tile_nvfp4 -DNVFP4
//: tile_fp8 -DFP8
//: tile_dot_q4_0 -DQ4_0 -DDOT
//: tile_dot_q4_1 -DQ4_1 -DDOT
//: tile_dot_q5_0 -DQ5_0 -DDOT
//: tile_dot_q5_1 -DQ5_1 -DDOT
//: tile_dot_q8_0 -DQ8_0 -DDOT
//: tile_dot_q2_k -DQ2_K -DDOT
//: tile_dot_q3_k -DQ3_K -DDOT
//: tile_dot_q4_k -DQ4_K -DDOT
//: tile_dot_q5_k -DQ5_K -DDOT
//: tile_dot_q6_k -DQ6_K -DDOT
//: tile_dot_iq1_s -DIQ1_S -DDOT
//: tile_dot_iq1_m -DIQ1_M -DDOT
//: tile_dot_iq2_xxs -DIQ2_XXS -DDOT
//: tile_dot_iq2_xs -DIQ2_XS -DDOT
//: tile_dot_iq2_s -DIQ2_S -DDOT
//: tile_dot_iq3_xxs -DIQ3_XXS -DDOT
//: tile_dot_iq3_s -DIQ3_S -DDOT
//: tile_dot_iq4_nl -DIQ4_NL -DDOT
//: tile_dot_iq4_xs -DIQ4_XS -DDOT
//: tile_dot_tq1_0 -DTQ1_0 -DDOT
//: tile_dot_tq2_0 -DTQ2_0 -DDOT
//: tile_dot_mxfp4 -DMXFP4 -DDOT
//: tile_dot_w4 -DW4 -DDOT
//: tile_dot_w8 -DW8 -DDOT
//: tile_dot_nvfp4 -DNVFP4 -DDOT
//: tile_matrix_f16 -DF16 -DMATRIX : coopmat
//: tile_matrix_q4_0 -DQ4_0 -DMATRIX : coopmat
//: tile_matrix_q4_1 -DQ4_1 -DMATRIX : coopmat
//: tile_matrix_q5_0 -DQ5_0 -DMATRIX : coopmat
//: tile_matrix_q5_1 -DQ5_1 -DMATRIX : coopmat
//: tile_matrix_q8_0 -DQ8_0 -DMATRIX : coopmat
//: tile_matrix_q2_k -DQ2_K -DMATRIX : coopmat
//: tile_matrix_q3_k -DQ3_K -DMATRIX : coopmat
//: tile_matrix_q4_k -DQ4_K -DMATRIX : coopmat
//: tile_matrix_q5_k -DQ5_K -DMATRIX : coopmat
//: tile_matrix_q6_k -DQ6_K -DMATRIX : coopmat
//: tile_matrix_iq1_s -DIQ1_S -DMATRIX : coopmat
//: tile_matrix_iq1_m -DIQ1_M -DMATRIX : coopmat
//: tile_matrix_iq2_xxs -DIQ2_XXS -DMATRIX : coopmat
//: tile_matrix_iq2_xs -DIQ2_XS -DMATRIX : coopmat
//: tile_matrix_iq2_s -DIQ2_S -DMATRIX : coopmat
//: tile_matrix_iq3_xxs -DIQ3_XXS -DMATRIX : coopmat
//: tile_matrix_iq3_s -DIQ3_S -DMATRIX : coopmat
//: tile_matrix_iq4_nl -DIQ4_NL -DMATRIX : coopmat
//: tile_matrix_iq4_xs -DIQ4_XS -DMATRIX : coopmat
//: tile_matrix_tq1_0 -DTQ1_0 -DMATRIX : coopmat
//: tile_matrix_tq2_0 -DTQ2_0 -DMATRIX : coopmat
//: tile_matrix_mxfp4 -DMXFP4 -DMATRIX : coopmat
//: tile_matrix_w4 -DW4 -DMATRIX : coopmat
//: tile_matrix_w8 -DW8 -DMATRIX : coopmat
//: tile_matrix_nvfp4 -DNVFP4 -DMATRIX : coopmat
//: tile_matrix_emulated_f16 -DF16 -DMATRIX -DEMULATED
//: tile_matrix_emulated_q4_0 -DQ4_0 -DMATRIX -DEMULATED
//: tile_matrix_emulated_q8_0 -DQ8_0 -DMATRIX -DEMULATED
//: tile_matrix_emulated_q4_k -DQ4_K -DMATRIX -DEMULATED
//: tile_matrix_emulated_q6_k -DQ6_K -DMATRIX -DEMULATED
//: tile_matrix_emulated_iq2_s -DIQ2_S -DMATRIX -DEMULATED
//: tile_matrix_emulated_mxfp4 -DMXFP4 -DMATRIX -DEMULATED
//: tile_matrix_emulated_w4 -DW4 -DMATRIX -DEMULATED
//: tile_matrix_emulated_w8 -DW8 -DMATRIX -DEMULATED
//: tile_matrix_emulated_nvfp4 -DNVFP4 -DMATRIX -DEMULATED
// Products of a weight and more than a few rows: y[t][r] = x[t] . weight[r] + bias[r].
//
// A workgroup computes kTile rows of the step (y) by kWide rows of the weight (x) of the output,
// kDeep columns at a time: these columns of the weight are decoded to shared memory once for all
// rows. A sum is one chain of fma over the columns in order, so that it depends on nothing
// else.
// DOT: x is in the planes of quantize_x.comp (dot.glsl). MATRIX: in those of halve_x.comp,
// multiplied by matrix units (tile_matrix.glsl).
//
// z  kHeads: a matrix of the stack and its columns of x and y.  kPlain: a part of the columns
//    (MATRIX only).
// y  kExperts: a block of expert_plan.comp, up to kTile slots of one expert.
#version 460
#include "head.glsl"
#include "types.glsl"

layout(constant_id = 1) const uint kTile = 64;  // 16, 32 or 64; with MATRIX also more
layout(constant_id = 2) const uint kKind = 0;
// Rows of x are aligned to 16 bytes and consist of whole units (always true with DOT).
layout(constant_id = 3) const bool kWhole = true;

const uint kPlain = 0, kHeads = 1, kExperts = 2;

layout(push_constant, scalar) uniform Args {
    uint64_t plane[4];
    uint64_t x, y, bias;  // bias: may be 0
    uint64_t plan;
    // MATRIX, with several parts: their sums, and for each tile the number of finished workgroups,
    // which is 0 before and after.
    uint64_t partial;
    uint64_t unused_base;
    uint64_t arrivals;
    uint row_units[4];    // per plane: in 16 bytes
    uint n, cols, rows;   // of a matrix; rows of x
    uint held;   // experts held: the first, and the count << 16
    uint slots;  // experts per row; and << 16: x has a row per row of the step instead of per slot
    uint scales_at;  // distance from the codes or halves of x to its scales, in 256 bytes
} a;

#ifdef MATRIX
layout(constant_id = 5) const uint kWide = 64;
layout(constant_id = 6) const uint kDeep = 32;
const uint kSize = gl_WorkGroupSize.x;
#else
const uint kSize = 128;
const uint kWide = 64;     // rows of the weight
const uint kDeep = 32;     // columns
#endif

shared uint slots[kTile];

// Address of the first column of row `row` of the tile.
uint64_t RowOfX(uint64_t x, uint64_t x_stride, uint row) {
    const bool by_token = kKind == kExperts && a.slots >> 16 != 0;
    return x + (by_token ? slots[row] / (a.slots & 0xffff) : slots[row]) * x_stride;
}
void StoreElement(uint64_t y, uint64_t y_stride, uint head, uint row, uint column, float value) {
    if (column >= a.n) return;
    precise float sum = value;
    if (a.bias != 0) sum = sum + Floats(a.bias).at[head + column];
    Floats(y + slots[row] * y_stride).at[column] = sum;
}

#if defined(DOT)
#include "tile_dot.glsl"
#elif defined(MATRIX)
#include "tile_matrix.glsl"
#else
#include "tile_float.glsl"
#endif

void main() {
    const uint lane = gl_LocalInvocationIndex;
    PrepareType(lane, kSize);
    uint64_t x = a.x, y = a.y, x_stride = XStride(), y_stride = uint64_t(a.n) * 4;
    uint matrix = 0, begin = gl_WorkGroupID.y * kTile, count = 0;
    if (kKind == kExperts) {
        if (int(gl_WorkGroupID.y) >= Ints(a.plan).at[0]) return;
        const uint block = 2 + 3 * gl_WorkGroupID.y;
        matrix = uint(Ints(a.plan).at[block]);
        begin = uint(Ints(a.plan).at[block + 1]);
        count = uint(Ints(a.plan).at[block + 2]);
    } else {
        count = min(a.rows - begin, kTile);
    }
    if (kKind == kHeads) {
        matrix = gl_WorkGroupID.z;
        x += matrix * x_stride;
        x_stride *= gl_NumWorkGroups.z;
        y += matrix * y_stride;
        y_stride *= gl_NumWorkGroups.z;
    }
    for (uint row = lane; row < kTile; row += kSize) {
        const uint i = begin + min(row, count - 1);
        slots[row] = kKind == kExperts ? uint(Ints(a.plan).at[uint(Ints(a.plan).at[1]) + i]) : i;
    }
    barrier();
    const uint head = matrix * a.n, first = gl_WorkGroupID.x * kWide;
    Sums sums;
    Clear(sums);
    BeginTile(head, first, x, x_stride, count, lane);
#ifdef MATRIX
    AddAll(head, first, x, x_stride, count, lane, sums);
#else
    for (uint deep = 0; deep < a.cols; deep += kDeep) {
        LoadWeights(head, first, deep, lane);
        LoadColumns(x, x_stride, count, deep, lane);
        barrier();
        AddProducts(lane, sums);
        barrier();
    }
#endif
    StoreTile(x, x_stride, y, y_stride, head, first, count, lane, sums);
}
