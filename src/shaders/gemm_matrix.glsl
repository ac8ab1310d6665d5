// Part of gemm.comp: products of float16 on matrix units, summed in float32. Each row of op(A) and
// each column of op(B) is multiplied by a power of two that scales its largest magnitude
// (gemm_peaks.comp) to [2^14, 2^15), so that nothing overflows. A bfloat16 keeps its bits unless it
// is below 2^-31 of that magnitude. Sums are multiplied by the inverses, which is exact. A row or
// column that contains NaN or infinity gives NaN.
//
// EMULATED: the same with ordinary instructions, to test on devices without matrix units.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 10) const uint kDeep = 32;
layout(constant_id = 11) const uint kSubgroups = 4;

// Tiles have their operands' layout, in groups of four elements: a row of a tile is one term, or
// holds all terms of an output's row or column. Strides are multiples of 16 bytes, chosen to avoid
// bank conflicts.
const uint kAlongA = kTurnA ? kTileM : kDeep, kAlongB = kTurnB ? kTileN : kDeep;
const uint kLinesA = kTurnA ? kDeep : kTileM, kLinesB = kTurnB ? kDeep : kTileN;
const uint kStrideA = kAlongA / 4 + 2, kStrideB = kAlongB / 4 + 2;
shared f16vec4 tile_a[kLinesA * kStrideA];
shared f16vec4 tile_b[kLinesB * kStrideB];
shared float scale_a[kTileM];
shared float scale_b[kTileN];

// A subgroup computes the 16 x 16 fragments at kEachM rows and kEachN columns of fragments.
const uint kFragmentsM = kTileM / 16, kFragmentsN = kTileN / 16;
const uint kWantedM = kSubgroups >= 16 ? 4 : kSubgroups >= 4 ? 2 : 1;
const uint kGroupsM = kWantedM < kFragmentsM ? kWantedM : kFragmentsM;
const uint kLeftN = kSubgroups / kGroupsM;
const uint kGroupsN = kLeftN < kFragmentsN ? kLeftN : kFragmentsN;
const uint kEachM = kFragmentsM / kGroupsM, kEachN = kFragmentsN / kGroupsN;
const uint kResultStride = 20;

#ifndef EMULATED
#include "units.glsl"
const uint kStoring = kSubgroups < 8 ? kSubgroups : 8;  // subgroups that store at the same time
shared float results[kStoring * 16 * kResultStride];

void ClearMatrix(out MatrixSums sums, uint row, uint column) { ClearUnits(sums); }
void LoadA(out MatrixA a, uint row, uint term) {
    if (kTurnA) {
        LOAD_COLUMNS_A(a, tile_a, term * kStrideA + row / 4, kStrideA);
    } else {
        LOAD_ROWS_A(a, tile_a, row * kStrideA + term / 4, kStrideA);
    }
}
void LoadB(out MatrixB b, uint column, uint term) {
    if (kTurnB) {
        LOAD_ROWS_B(b, tile_b, term * kStrideB + column / 4, kStrideB);
    } else {
        LOAD_COLUMNS_B(b, tile_b, column * kStrideB + term / 4, kStrideB);
    }
}
// Stores the fragment; returns its position in `results`, valid until the subgroup's next call.
uint StoreMatrix(MatrixSums sums) {
    const uint at = gl_SubgroupID % kStoring * 16 * kResultStride;
    STORE_SUMS(sums, results, at, kResultStride, 1);
    return at;
}
uint ElementAt(uint i) { return i / 16 * kResultStride + i % 16; }
#else
// Each matrix is a position in shared memory; an invocation has every gl_SubgroupSize-th element of
// the sums.
#define MatrixA uvec2
#define MatrixB uvec2
#define MatrixSums uint
const uint kStoring = kSubgroups;
const uint kSumStride = kTileN + 4;
shared float results[kTileM * kSumStride];

uint ElementAt(uint i) { return i / 16 * kSumStride + i % 16; }
void ClearMatrix(out MatrixSums sums, uint row, uint column) {
    sums = row * kSumStride + column;
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < 256; i += gl_SubgroupSize) {
        results[sums + ElementAt(i)] = 0;
    }
}
void LoadA(out MatrixA a, uint row, uint term) { a = uvec2(row, term); }
void LoadB(out MatrixB b, uint column, uint term) { b = uvec2(column, term); }
float HalfOfA(uint row, uint term) {
    const uint line = kTurnA ? term : row, along = kTurnA ? row : term;
    return float(tile_a[line * kStrideA + along / 4][along % 4]);
}
float HalfOfB(uint column, uint term) {
    const uint line = kTurnB ? term : column, along = kTurnB ? column : term;
    return float(tile_b[line * kStrideB + along / 4][along % 4]);
}
void MultiplyAdd(MatrixA a, MatrixB b, inout MatrixSums sums) {
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < 256; i += gl_SubgroupSize) {
        float sum = results[sums + ElementAt(i)];
        [[dont_unroll]] for (uint d = 0; d < 16; ++d) {
            sum = fma(HalfOfA(a.x + i / 16, a.y + d), HalfOfB(b.x + i % 16, b.y + d), sum);
        }
        results[sums + ElementAt(i)] = sum;
    }
}
uint StoreMatrix(MatrixSums sums) { return sums; }
#endif

struct Sums { MatrixSums of[kEachM * kEachN]; };

bool IsIdle() { return gl_SubgroupID >= kGroupsM * kGroupsN; }
uint FragmentM(uint i) { return gl_SubgroupID / kGroupsN * kEachM + i; }
uint FragmentN(uint j) { return gl_SubgroupID % kGroupsN * kEachN + j; }

// The factor that scales the largest peak of a row or column, over its groups, to [2^14, 2^15).
// Zero if the peak is NaN or infinity.
float ScaleOf(uint64_t peaks, uint groups, uint count, uint index) {
    uint peak = 0;
    for (uint i = 0; i < groups; ++i) peak = max(peak, uint(Ints(peaks).at[i * count + index]));
    if (peak >= 0x7f800000u) return 0;
    return uintBitsToFloat(uint(clamp(14 - (int(peak >> 23) - 127), -120, 120) + 127) << 23);
}
float InverseOf(float power) { return uintBitsToFloat((254u << 23) - floatBitsToUint(power)); }
// Computes sum / (a * b). Multiplies by the smaller inverse first, since the other might overflow.
float Unscaled(float sum, float a, float b) {
    if (a == 0 || b == 0) return uintBitsToFloat(0x7fc00000u);
    const float x = InverseOf(a), y = InverseOf(b);
    return sum * min(x, y) * max(x, y);
}

// Columns beyond n use the last column's scale, and rows beyond `rows` the last row's scale.
void LoadScales(uint lane) {
    for (uint i = lane; i < kTileM; i += kSize) {
        const uint last = min(i, rows - 1);
        const uint row = kTurnA ? first_m + last : RowOfA(last);
        scale_a[i] = begin_k >= end_k ? 1 : ScaleOf(g.a_peaks, g.groups & 0xffff, g.a_count, row);
    }
    for (uint i = lane; i < kTileN; i += kSize) {
        const uint last = min(i, g.n - 1 - first_n);
        const uint of_matrix = kGroups == kRows ? matrix * g.n : 0;
        const uint column = kTurnB ? of_matrix + first_n + last : RowOfB(last);
        scale_b[i] = begin_k >= end_k ? 1 : ScaleOf(g.b_peaks, g.groups >> 16, g.b_count, column);
    }
    barrier();
}

vec4 ScalesA(uint i) { return vec4(scale_a[i], scale_a[i + 1], scale_a[i + 2], scale_a[i + 3]); }
vec4 ScalesB(uint i) { return vec4(scale_b[i], scale_b[i + 1], scale_b[i + 2], scale_b[i + 3]); }
// If a scale is zero, the result may be NaN. It affects only that row or column of C, which is NaN
// anyway.
f16vec4 Halved(vec4 x, vec4 scale) { return f16vec4(x * scale); }

const uint kEightsA = kAlongA / 8, kEightsB = kAlongB / 8;
const uint kJobsA = kLinesA * kEightsA, kJobsB = kLinesB * kEightsB;
const uint kEachA = (kJobsA + kSize - 1) / kSize, kEachB = (kJobsB + kSize - 1) / kSize;
struct Brought {
    f16vec4 a[2 * kEachA];
    f16vec4 b[2 * kEachB];
};

void Fetch(uint lane, uint deep, out Brought next) {
    [[unroll]] for (uint i = 0; i < kEachA; ++i) {
        const uint job = min(lane + i * kSize, kJobsA - 1);
        const uint line = job / kEightsA, eight = job % kEightsA;
        const Eight x = FetchA(line, eight, deep);
        const vec4 one = vec4(scale_a[kTurnA ? 0 : line]);
        next.a[2 * i] = Halved(x.low, kTurnA ? ScalesA(8 * eight) : one);
        next.a[2 * i + 1] = Halved(x.high, kTurnA ? ScalesA(8 * eight + 4) : one);
    }
    [[unroll]] for (uint i = 0; i < kEachB; ++i) {
        const uint job = min(lane + i * kSize, kJobsB - 1);
        const uint line = job / kEightsB, eight = job % kEightsB;
        const Eight x = FetchB(line, eight, deep);
        const vec4 one = vec4(scale_b[kTurnB ? 0 : line]);
        next.b[2 * i] = Halved(x.low, kTurnB ? ScalesB(8 * eight) : one);
        next.b[2 * i + 1] = Halved(x.high, kTurnB ? ScalesB(8 * eight + 4) : one);
    }
}
void Place(uint lane, Brought next) {
    [[unroll]] for (uint i = 0; i < kEachA; ++i) {
        const uint job = lane + i * kSize;
        const uint to = job / kEightsA * kStrideA + 2 * (job % kEightsA);
        if (job >= kJobsA) continue;
        tile_a[to] = next.a[2 * i];
        tile_a[to + 1] = next.a[2 * i + 1];
    }
    [[unroll]] for (uint i = 0; i < kEachB; ++i) {
        const uint job = lane + i * kSize;
        const uint to = job / kEightsB * kStrideB + 2 * (job % kEightsB);
        if (job >= kJobsB) continue;
        tile_b[to] = next.b[2 * i];
        tile_b[to + 1] = next.b[2 * i + 1];
    }
}

void AddProducts(inout Sums sums) {
    if (IsIdle()) return;
    [[unroll]] for (uint d = 0; d < kDeep; d += 16) {
        MatrixB b[kEachN];
        [[unroll]] for (uint j = 0; j < kEachN; ++j) LoadB(b[j], 16 * FragmentN(j), d);
        [[unroll]] for (uint i = 0; i < kEachM; ++i) {
            MatrixA a;
            LoadA(a, 16 * FragmentM(i), d);
            [[unroll]] for (uint j = 0; j < kEachN; ++j) {
                MultiplyAdd(a, b[j], sums.of[i * kEachN + j]);
            }
        }
    }
}

void StoreFragment(uint top, uint left, MatrixSums sums) {
    const uint at = StoreMatrix(sums);
    subgroupBarrier();
    for (uint job = gl_SubgroupInvocationID; job < 64; job += kSize / kSubgroups) {
        const uint row = top + job / 4, column = left + job % 4 * 4, from = at + ElementAt(4 * job);
        vec4 four = vec4(results[from], results[from + 1], results[from + 2], results[from + 3]);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            four[i] = Unscaled(four[i], scale_a[row], scale_b[column + i]);
        }
        StoreSums(row, column, four);
    }
    subgroupBarrier();
}

// The next terms are loaded while the current ones are multiplied.
void Multiply(uint lane) {
    LoadScales(lane);
    Sums sums;
    [[unroll]] for (uint i = 0; i < kEachM; ++i) {
        [[unroll]] for (uint j = 0; j < kEachN; ++j) {
            if (IsIdle()) continue;
            ClearMatrix(sums.of[i * kEachN + j], 16 * FragmentM(i), 16 * FragmentN(j));
        }
    }
    for (uint deep = begin_k;; deep += kDeep) {
        Brought next;
        Fetch(lane, deep, next);
        if (deep != begin_k) AddProducts(sums);
        if (deep >= end_k) break;
        barrier();
        Place(lane, next);
        barrier();
    }
    for (uint turn = 0; turn < kSubgroups; turn += kStoring) {
        const bool mine = gl_SubgroupID / kStoring * kStoring == turn && !IsIdle();
        [[unroll]] for (uint i = 0; i < kEachM; ++i) {
            [[unroll]] for (uint j = 0; j < kEachN; ++j) {
                if (!mine) continue;
                StoreFragment(16 * FragmentM(i), 16 * FragmentN(j), sums.of[i * kEachN + j]);
            }
        }
        barrier();
    }
}
