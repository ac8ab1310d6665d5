// Matrices of 16 x 16 by a subgroup: f16 times f16, summed in float32. With EMULATED the same by
// ordinary instructions, for devices without matrix units to test with.
//
// Of a product out[m][n] += rows[m][k] * weights[n][k]: operands lie in the shared arrays
// `half_columns` and `half_weights`, kHalfStride elements a row; results go to `results`,
// kResultStride floats a row.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

const uint kHalfStride = kDeep + 8;      // a multiple of 16 bytes, and not of all banks
const uint kResultStride = kWide + 4;
shared float16_t half_columns[kTile * kHalfStride];
shared float16_t half_weights[kWide * kHalfStride];
shared float results[kTile * kResultStride];

#ifndef EMULATED
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require

#define MatrixRows coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MatrixWeights coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MatrixSums coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

void ClearMatrix(out MatrixSums sums) { sums = MatrixSums(0.0); }
void LoadRows(out MatrixRows m, uint row, uint k) {
    coopMatLoad(m, half_columns, row * kHalfStride + k, kHalfStride,
                gl_CooperativeMatrixLayoutRowMajor);
}
void LoadWeightRows(out MatrixWeights m, uint row, uint k) {
    coopMatLoad(m, half_weights, row * kHalfStride + k, kHalfStride,
                gl_CooperativeMatrixLayoutColumnMajor);
}
void MultiplyAdd(MatrixRows rows, MatrixWeights weights, inout MatrixSums sums) {
    sums = coopMatMulAdd(rows, weights, sums);
}
void StoreMatrix(MatrixSums sums, uint row, uint column) {
    coopMatStore(sums, results, row * kResultStride + column, kResultStride,
                 gl_CooperativeMatrixLayoutRowMajor);
}
#else
// The invocations of a subgroup have one element in so many each.
const uint kMostElements = 256 / 4;
#define MatrixRows uint
#define MatrixWeights uint
struct MatrixSums { float of[kMostElements]; };

void ClearMatrix(out MatrixSums sums) {
    for (uint i = 0; i < kMostElements; ++i) sums.of[i] = 0;
}
void LoadRows(out MatrixRows m, uint row, uint k) { m = row * kHalfStride + k; }
void LoadWeightRows(out MatrixWeights m, uint row, uint k) { m = row * kHalfStride + k; }
void MultiplyAdd(MatrixRows rows, MatrixWeights weights, inout MatrixSums sums) {
    for (uint i = 0; i * gl_SubgroupSize < 256; ++i) {
        const uint element = i * gl_SubgroupSize + gl_SubgroupInvocationID;
        float sum = sums.of[i];
        for (uint k = 0; k < 16; ++k) {
            sum = fma(float(half_columns[rows + element / 16 * kHalfStride + k]),
                      float(half_weights[weights + element % 16 * kHalfStride + k]), sum);
        }
        sums.of[i] = sum;
    }
}
void StoreMatrix(MatrixSums sums, uint row, uint column) {
    for (uint i = 0; i * gl_SubgroupSize < 256; ++i) {
        const uint element = i * gl_SubgroupSize + gl_SubgroupInvocationID;
        results[(row + element / 16) * kResultStride + column + element % 16] = sums.of[i];
    }
}
#endif
