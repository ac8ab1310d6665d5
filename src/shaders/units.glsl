// 16 x 16 matrices of a subgroup on matrix units: f16 times f16, summed in float32.
//
// With SMALL_UNITS, a unit multiplies kUnitM x kUnitK by kUnitK x kUnitN elements, each 8 or 16.
// gpu/kernel.cc sets them to a size that the device has. So a matrix consists of one, two or four
// matrices of a unit. Otherwise a unit has 16 x 16 x 16 elements.
//
// Macros load and store matrices, since a function would copy the array in shared memory. A matrix
// begins at `at`; `stride` is the distance of the array's rows. Both are in elements of the array.
// An element is four halves, or `width` floats. LOAD_ROWS: the array's rows are the matrix's;
// LOAD_COLUMNS: they are the matrix's columns.
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require

#ifndef SMALL_UNITS
#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MatrixSums coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

#define LOAD_ROWS_A(a, array, at, stride) \
    coopMatLoad(a, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_COLUMNS_A(a, array, at, stride) \
    coopMatLoad(a, array, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_ROWS_B(b, array, at, stride) LOAD_ROWS_A(b, array, at, stride)
#define LOAD_COLUMNS_B(b, array, at, stride) LOAD_COLUMNS_A(b, array, at, stride)
#define LOAD_SUMS(sums, array, at, stride, width) LOAD_ROWS_A(sums, array, at, stride)
#define STORE_SUMS(sums, array, at, stride, width) \
    coopMatStore(sums, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)

void ClearUnits(out MatrixSums sums) { sums = MatrixSums(0.0); }
void CopyUnits(MatrixA from, out MatrixA to) { to = from; }
void ScaleUnits(inout MatrixSums sums, MatrixSums factors) { sums = sums * factors; }
void MultiplyAdd(MatrixA a, MatrixB b, inout MatrixSums sums) { sums = coopMatMulAdd(a, b, sums); }
#else
layout(constant_id = 31) const uint kUnitM = 16;
layout(constant_id = 32) const uint kUnitN = 16;
layout(constant_id = 33) const uint kUnitK = 16;
const uint kUnitsM = 16 / kUnitM, kUnitsN = 16 / kUnitN, kUnitsK = 16 / kUnitK;

#define UnitA coopmat<float16_t, gl_ScopeSubgroup, kUnitM, kUnitK, gl_MatrixUseA>
#define UnitB coopmat<float16_t, gl_ScopeSubgroup, kUnitK, kUnitN, gl_MatrixUseB>
#define UnitSums coopmat<float, gl_ScopeSubgroup, kUnitM, kUnitN, gl_MatrixUseAccumulator>
struct MatrixA { UnitA of[kUnitsM * kUnitsK]; };
struct MatrixB { UnitB of[kUnitsN * kUnitsK]; };
struct MatrixSums { UnitSums of[kUnitsM * kUnitsN]; };

// Repeats the next statement for each row unit `v` below `down` and column unit `u` below `across`.
#define UNITS(v, down, u, across)                  \
    [[unroll]] for (uint v = 0; v < down; ++v)     \
        [[unroll]] for (uint u = 0; u < across; ++u)

#define LOAD_ROWS_A(a, array, at, stride)                                        \
    UNITS(v, kUnitsM, u, kUnitsK)                                                \
    coopMatLoad(a.of[v * kUnitsK + u], array,                                    \
                (at) + v * kUnitM * (stride) + u * kUnitK / 4, stride,           \
                gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_COLUMNS_A(a, array, at, stride)                                     \
    UNITS(v, kUnitsM, u, kUnitsK)                                                \
    coopMatLoad(a.of[v * kUnitsK + u], array,                                    \
                (at) + u * kUnitK * (stride) + v * kUnitM / 4, stride,           \
                gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_ROWS_B(b, array, at, stride)                                        \
    UNITS(v, kUnitsN, u, kUnitsK)                                                \
    coopMatLoad(b.of[v * kUnitsK + u], array,                                    \
                (at) + u * kUnitK * (stride) + v * kUnitN / 4, stride,           \
                gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_COLUMNS_B(b, array, at, stride)                                     \
    UNITS(v, kUnitsN, u, kUnitsK)                                                \
    coopMatLoad(b.of[v * kUnitsK + u], array,                                    \
                (at) + v * kUnitN * (stride) + u * kUnitK / 4, stride,           \
                gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_SUMS(sums, array, at, stride, width)                                \
    UNITS(v, kUnitsM, u, kUnitsN)                                                \
    coopMatLoad(sums.of[v * kUnitsN + u], array,                                 \
                (at) + v * kUnitM * (stride) + u * kUnitN / width, stride,       \
                gl_CooperativeMatrixLayoutRowMajor)
#define STORE_SUMS(sums, array, at, stride, width)                               \
    UNITS(v, kUnitsM, u, kUnitsN)                                                \
    coopMatStore(sums.of[v * kUnitsN + u], array,                                \
                 (at) + v * kUnitM * (stride) + u * kUnitN / width, stride,      \
                 gl_CooperativeMatrixLayoutRowMajor)

void ClearUnits(out MatrixSums sums) {
    [[unroll]] for (uint i = 0; i < kUnitsM * kUnitsN; ++i) sums.of[i] = UnitSums(0.0);
}
void CopyUnits(MatrixA from, out MatrixA to) {
    [[unroll]] for (uint i = 0; i < kUnitsM * kUnitsK; ++i) to.of[i] = from.of[i];
}
void ScaleUnits(inout MatrixSums sums, MatrixSums factors) {
    [[unroll]] for (uint i = 0; i < kUnitsM * kUnitsN; ++i) sums.of[i] = sums.of[i] * factors.of[i];
}
void MultiplyAdd(MatrixA a, MatrixB b, inout MatrixSums sums) {
    [[unroll]] for (uint k = 0; k < kUnitsK; ++k) {
        UNITS(v, kUnitsM, u, kUnitsN) {
            const uint at = v * kUnitsN + u;
            sums.of[at] =
                coopMatMulAdd(a.of[v * kUnitsK + k], b.of[u * kUnitsK + k], sums.of[at]);
        }
    }
}
#endif
