// 16 x 16 matrices of a subgroup: f16 times f16, summed in float32. With EMULATED, ordinary
// instructions compute the same, to test on devices without matrix units.
//
// For a product out[m][n] += rows[m][k] * weights[n][k], operands are in the shared arrays
// `half_columns` and `half_weights`, kHalfStride groups of four elements per row. Results are
// stored in `results`, kResultStride floats per row, visible to the subgroup.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

// How many tiles of operands shared memory holds, and how many subgroups store at the same time at
// most.
#ifndef MATRIX_BUFFERS
#define MATRIX_BUFFERS 1
#endif
#ifndef MATRIX_STORING
#define MATRIX_STORING 8
#endif

const uint kHalfStride = kDeep / 4 + 2;  // a multiple of 16 bytes, chosen to avoid bank conflicts
shared f16vec4 half_columns[MATRIX_BUFFERS * kTile * kHalfStride];
shared f16vec4 half_weights[MATRIX_BUFFERS * kWide * kHalfStride];
// Offset of element i of a matrix in `results`.
uint ElementAt(uint i);

#ifndef EMULATED
#include "units.glsl"
#define MatrixRows MatrixA
#define MatrixWeights MatrixB

const uint kResultStride = 20;
// Subgroups that store at the same time.
const uint kStoring = kSubgroups < MATRIX_STORING ? kSubgroups : MATRIX_STORING;
shared float results[kStoring * 16 * kResultStride];

void ClearMatrix(out MatrixSums sums, uint row, uint column) { ClearUnits(sums); }
void LoadRows(out MatrixRows m, uint row, uint k) {
    LOAD_ROWS_A(m, half_columns, row * kHalfStride + k / 4, kHalfStride);
}
void LoadWeightRows(out MatrixWeights m, uint row, uint k) {
    LOAD_COLUMNS_B(m, half_weights, row * kHalfStride + k / 4, kHalfStride);
}
// Stores the matrix; returns its position in `results`, valid until the subgroup's next call.
uint StoreMatrix(MatrixSums sums) {
    const uint at = gl_SubgroupID % kStoring * 16 * kResultStride;
    STORE_SUMS(sums, results, at, kResultStride, 1);
    return at;
}
#else
// Each matrix is a position in shared memory. An invocation has every gl_SubgroupSize-th element of
// the sums.
#define MatrixRows uint
#define MatrixWeights uint
#define MatrixSums uint

const uint kResultStride = kWide + 4;
const uint kStoring = kSubgroups;
shared float results[kTile * kResultStride];

void ClearMatrix(out MatrixSums sums, uint row, uint column) {
    sums = row * kResultStride + column;
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < 256; i += gl_SubgroupSize) {
        results[sums + ElementAt(i)] = 0;
    }
}
void LoadRows(out MatrixRows m, uint row, uint k) { m = row * kHalfStride + k / 4; }
void LoadWeightRows(out MatrixWeights m, uint row, uint k) { m = row * kHalfStride + k / 4; }
void MultiplyAdd(MatrixRows rows, MatrixWeights weights, inout MatrixSums sums) {
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < 256; i += gl_SubgroupSize) {
        float sum = results[sums + ElementAt(i)];
        [[dont_unroll]] for (uint k = 0; k < 4; ++k) {
            const vec4 x = vec4(half_columns[rows + i / 16 * kHalfStride + k]);
            const vec4 w = vec4(half_weights[weights + i % 16 * kHalfStride + k]);
            sum += dot(x, w);
        }
        results[sums + ElementAt(i)] = sum;
    }
}
uint StoreMatrix(MatrixSums sums) { return sums; }
#endif
uint ElementAt(uint i) { return i / 16 * kResultStride + i % 16; }
