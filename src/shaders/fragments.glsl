// 16 x 16 matrices of a subgroup in a shader's own layout: f16 times f16, summed in float32. With
// EMULATED, ordinary instructions compute the same, to test on devices without matrix units.
// (matrix.glsl has the layout of products.)
//
// Operands are in the shared array `halves`, sums in `floats`. A matrix has a position in its array
// and a stride between the array's rows, both in groups of four elements. The shader defines
// kHalfFours and kFloatFours, the lengths of the arrays, and kSize, the size of a subgroup. It
// gives each matrix of sums another number below kMatrices.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

shared f16vec4 halves[kHalfFours];
shared vec4 floats[kFloatFours];

#ifndef EMULATED
#include "units.glsl"

void ClearMatrix(out MatrixSums sums, uint number) { ClearUnits(sums); }
void LoadA(out MatrixA a, uint at, uint stride) { LOAD_ROWS_A(a, halves, at, stride); }
void CopyA(MatrixA from, out MatrixA to) { CopyUnits(from, to); }
// The array's rows are the columns of b.
void LoadColumnsB(out MatrixB b, uint at, uint stride) { LOAD_COLUMNS_B(b, halves, at, stride); }
// The array's rows are the rows of b.
void LoadRowsB(out MatrixB b, uint at, uint stride) { LOAD_ROWS_B(b, halves, at, stride); }
void LoadSums(out MatrixSums sums, uint number, uint at, uint stride) {
    LOAD_SUMS(sums, floats, at, stride, 4);
}
void StoreSums(MatrixSums sums, uint at, uint stride) { STORE_SUMS(sums, floats, at, stride, 4); }
// Multiplies each element by the element of `factors` at the same place.
void ScaleSums(inout MatrixSums sums, MatrixSums factors) { ScaleUnits(sums, factors); }
#else
// An operand is a place in `halves`. A matrix of sums is a place in `own_sums`, where an invocation
// has every kSize-th element. (A struct of elements would be copied at every call.)
struct Operand {
    uint at, stride;
    bool by_rows;
};
const uint kOwnElements = 256 / kSize;
float own_sums[kMatrices * kOwnElements];
#define MatrixA Operand
#define MatrixB Operand
#define MatrixSums uint

void ClearMatrix(out MatrixSums sums, uint number) {
    sums = number * kOwnElements;
    [[dont_unroll]] for (uint i = 0; i < kOwnElements; ++i) own_sums[sums + i] = 0;
}
void LoadA(out MatrixA a, uint at, uint stride) { a = Operand(at, stride, true); }
void CopyA(MatrixA from, out MatrixA to) { to = from; }
void LoadColumnsB(out MatrixB b, uint at, uint stride) { b = Operand(at, stride, false); }
void LoadRowsB(out MatrixB b, uint at, uint stride) { b = Operand(at, stride, true); }
vec4 FourOfB(MatrixB b, uint column, uint k) {
    if (!b.by_rows) return vec4(halves[b.at + column * b.stride + k / 4]);
    vec4 four;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        four[i] = float(halves[b.at + (k + i) * b.stride + column / 4][column % 4]);
    }
    return four;
}
void MultiplyAdd(MatrixA a, MatrixB b, MatrixSums sums) {
    [[dont_unroll]] for (uint i = 0; i < kOwnElements; ++i) {
        const uint element = gl_SubgroupInvocationID + i * kSize;
        float sum = own_sums[sums + i];
        [[dont_unroll]] for (uint k = 0; k < 16; k += 4) {
            const vec4 x = vec4(halves[a.at + element / 16 * a.stride + k / 4]);
            const vec4 y = FourOfB(b, element % 16, k);
            sum = fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
        }
        own_sums[sums + i] = sum;
    }
}
void LoadSums(out MatrixSums sums, uint number, uint at, uint stride) {
    sums = number * kOwnElements;
    [[dont_unroll]] for (uint i = 0; i < kOwnElements; ++i) {
        const uint element = gl_SubgroupInvocationID + i * kSize;
        own_sums[sums + i] = floats[at + element / 16 * stride + element % 16 / 4][element % 4];
    }
}
void StoreSums(MatrixSums sums, uint at, uint stride) {
    [[dont_unroll]] for (uint i = 0; i < kOwnElements; ++i) {
        const uint element = gl_SubgroupInvocationID + i * kSize;
        floats[at + element / 16 * stride + element % 16 / 4][element % 4] = own_sums[sums + i];
    }
}
void ScaleSums(MatrixSums sums, MatrixSums factors) {
    [[dont_unroll]] for (uint i = 0; i < kOwnElements; ++i) {
        own_sums[sums + i] *= own_sums[factors + i];
    }
}
#endif
