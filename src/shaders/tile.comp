//: tile_@ -D@ for PLAIN CODED FP8
//: tile_dot_@ -D@ -DDOT for CODED
//: tile_matrix_@ -D@ -DMATRIX for F16 CODED : coopmat
//: tile_matrix_emulated_@ -D@ -DMATRIX -DEMULATED for F16 Q4_0 Q8_0 Q4_K Q6_K IQ2_S MXFP4
//: tile_matrix_emulated_@ -D@ -DMATRIX -DEMULATED for W4 W8 NVFP4
// Products of a weight and more than a few rows: y[t][r] = x[t] . weight[r] + bias[r].
//
// A workgroup computes a tile of the output: kTile rows of the step (workgroup y) by kWide rows of
// the weight (workgroup x). It decodes kDeep columns of the weight at a time to shared memory, once
// for all rows. A sum is one chain of fma over the columns in order, so it depends on nothing else.
// DOT: x is in the planes of quantize_x.comp (dot.glsl). MATRIX: x is in the planes of
// halve_x.comp, and matrix units multiply (tile_matrix.glsl).
//
// z  kHeads: a matrix of the stack and its columns of x and y.  kPlain: a part of the columns
//    (MATRIX only).
// y  kExperts: a block of expert_order.comp, up to kTile slots of one expert.
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
    // MATRIX with several parts. partial: the parts' sums. arrivals: for each tile, the number of
    // finished workgroups, which is 0 before and after.
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
        const uint block = 4 + 3 * gl_WorkGroupID.y;
        matrix = uint(Ints(a.plan).at[block]);
        if (matrix == uint(Ints(a.plan).at[3])) return;  // experts of other ranks
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
