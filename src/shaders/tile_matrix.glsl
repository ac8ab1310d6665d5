// Part of tile.comp: products of f16 on matrix units. x is an address within the halves of x, as
// written by halve_x.comp: rows padded to 32 columns, each multiplied by a power of two that scales
// its peak to [2^14, 2^15). Each row of the weight is scaled likewise, by a bound of its elements
// that follows from its block scales. So nothing overflows, and f16 loses less than 2^-28 of the
// largest. The float32 sums are multiplied by the inverses, which is exact.
layout(constant_id = 4) const uint kSubgroups = 4;
#include "matrix.glsl"

// A subgroup computes the 16 x 16 fragments at kEachN columns and kEachM rows of fragments.
const uint kFragmentsN = kWide / 16, kFragmentsM = kTile / 16;
const uint kWantedM = kSubgroups >= 16 ? 4 : kSubgroups >= 4 ? 2 : 1;
const uint kGroupsM = kWantedM < kFragmentsM ? kWantedM : kFragmentsM;
const uint kLeftN = kSubgroups / kGroupsM;
const uint kGroupsN = kLeftN < kFragmentsN ? kLeftN : kFragmentsN;
const uint kEachN = kFragmentsN / kGroupsN, kEachM = kFragmentsM / kGroupsM;

shared uint weight_bounds[kWide];  // as bits
shared float weight_scales[kWide];

uint64_t XStride() { return uint64_t((a.cols + 31) / 32 * 32) * 2; }

struct Sums { MatrixSums of[kEachN * kEachM]; };

WeightRow WeightAt(uint row) {
    WeightRow at;
    [[unroll]] for (int p = 0; p < 4; ++p) {
        at.plane[p] = a.plane[p] + uint64_t(row) * a.row_units[p] * 16;
    }
    return at;
}

// 2^shift, for a shift of at most 126 up or down.
float PowerOfTwo(int shift) { return uintBitsToFloat(uint(shift + 127) << 23); }
float InverseOf(float power) { return uintBitsToFloat((254u << 23) - floatBitsToUint(power)); }
// The shift that scales a number with these bits to [2^14, 2^15), as far as possible; 0 for
// infinity and NaN.
int ShiftOf(uint bits) {
    return bits >= 0x7f800000u ? 0 : clamp(14 - (int(bits >> 23) - 127), -120, 120);
}

void BeginTile(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint lane) {
#if PLAIN == 0
#if BOOK == 1 || GRID > 0
    const float most = 128;
#elif defined(W4)
    const float most = 256;
#else
    const float most = float(1 << LOW + HIGH);
#endif
    for (uint row = lane; row < kWide; row += kSize) weight_bounds[row] = 0;
    barrier();
    const uint each = kSize / kWide;
    const WeightRow at = WeightAt(head + min(first + lane / each, a.n - 1));
    uint bound = 0;
    for (uint unit = lane % each; unit * UNIT < a.cols; unit += each) {
        const Scales s = ScalesOf(at, unit);
        const vec2 size = abs(s.scale) * most + abs(s.offset);
        bound = max(bound, max(floatBitsToUint(size.x), floatBitsToUint(size.y)) & 0x7fffffffu);
    }
    atomicMax(weight_bounds[lane / each], bound);
    barrier();
    for (uint row = lane; row < kWide; row += kSize) {
        weight_scales[row] = PowerOfTwo(ShiftOf(weight_bounds[row]));
    }
#else
    for (uint row = lane; row < kWide; row += kSize) weight_scales[row] = 1;
#endif
    barrier();
}

// The part of the next columns that an invocation loads: of kWide rows of the weight, and of kTile
// rows of x.
const uint kUnits = kDeep / UNIT, kEights = kDeep / 8;
const uint kWeightJobs = (kWide * kUnits + kSize - 1) / kSize;
const uint kColumnJobs = (kTile * kEights + kSize - 1) / kSize;
struct Brought {
    f16vec4 weights[kWeightJobs * QUADS];
    uvec4 columns[kColumnJobs];
};

// Fetches columns [begin, begin + kDeep) of rows [first, ...) of the matrix that begins with row
// `head`.
void Fetch(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint begin, uint lane,
           out Brought next) {
    const uint units = (a.cols + UNIT - 1) / UNIT;
    [[unroll]] for (uint i = 0; i < kColumnJobs; ++i) {
        const uint job = lane + i * kSize, row = job / kEights, eight = job % kEights;
        next.columns[i] = uvec4(0);
        if (row < count && begin + 8 * eight < a.cols) {
            next.columns[i] = Words4(RowOfX(x, x_stride, row)).at[begin / 8 + eight];
        }
    }
    [[unroll]] for (uint i = 0; i < kWeightJobs; ++i) {
        const uint job = lane + i * kSize, row = job / kUnits, unit = begin / UNIT + job % kUnits;
        vec4 w[QUADS];
        [[unroll]] for (uint j = 0; j < QUADS; ++j) w[j] = vec4(0);
        if (row < kWide && unit < units) Decode(WeightAt(head + min(first + row, a.n - 1)), unit, w);
        const float scale = weight_scales[min(row, kWide - 1)];
        [[unroll]] for (uint j = 0; j < QUADS; ++j) {
            next.weights[i * QUADS + j] = f16vec4(w[j] * scale);
        }
    }
}
void Place(uint lane, Brought next) {
    [[unroll]] for (uint i = 0; i < kColumnJobs; ++i) {
        const uint job = lane + i * kSize, row = job / kEights;
        const uint to = row * kHalfStride + 2 * (job % kEights);
        const uvec4 bits = next.columns[i];
        if (row >= kTile) continue;
        half_columns[to] = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
        half_columns[to + 1] = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
    }
    [[unroll]] for (uint i = 0; i < kWeightJobs; ++i) {
        const uint job = lane + i * kSize, row = job / kUnits;
        if (row >= kWide) continue;
        [[unroll]] for (uint j = 0; j < QUADS; ++j) {
            half_weights[row * kHalfStride + job % kUnits * QUADS + j] = next.weights[i * QUADS + j];
        }
    }
}

bool IsIdle() { return gl_SubgroupID >= kGroupsN * kGroupsM; }
uint FragmentN(uint i) { return gl_SubgroupID % kGroupsN * kEachN + i; }
uint FragmentM(uint j) { return gl_SubgroupID / kGroupsN * kEachM + j; }

void Clear(out Sums sums) {
    if (IsIdle()) return;
    [[unroll]] for (uint j = 0; j < kEachM; ++j) {
        [[unroll]] for (uint i = 0; i < kEachN; ++i) {
            ClearMatrix(sums.of[j * kEachN + i], 16 * FragmentM(j), 16 * FragmentN(i));
        }
    }
}

// sums += products of the columns in shared memory.
void AddProducts(inout Sums sums) {
    if (IsIdle()) return;
    [[unroll]] for (uint k = 0; k < kDeep; k += 16) {
        MatrixWeights w[kEachN];
        [[unroll]] for (uint i = 0; i < kEachN; ++i) LoadWeightRows(w[i], 16 * FragmentN(i), k);
        [[unroll]] for (uint j = 0; j < kEachM; ++j) {
            MatrixRows rows;
            LoadRows(rows, 16 * FragmentM(j), k);
            [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                MultiplyAdd(rows, w[i], sums.of[j * kEachN + i]);
            }
        }
    }
}

// The next columns are loaded while the current ones are multiplied.
void AddAll(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint lane,
            inout Sums sums) {
    Brought next;
    Fetch(head, first, x, x_stride, count, 0, lane, next);
    for (uint begin = 0; begin < a.cols; begin += kDeep) {
        Place(lane, next);
        barrier();
        if (begin + kDeep < a.cols) {
            Fetch(head, first, x, x_stride, count, begin + kDeep, lane, next);
        }
        AddProducts(sums);
        barrier();
    }
}

void StoreFragment(uint64_t x, uint64_t x_stride, uint64_t y, uint64_t y_stride, uint head,
                   uint first, uint count, uint top, uint left, MatrixSums sums) {
    const uint64_t scales = a.x + uint64_t(a.scales_at) * 256;
    const uint at = StoreMatrix(sums);
    subgroupBarrier();
    for (uint job = gl_SubgroupInvocationID; job < 256; job += kSize / kSubgroups) {
        const uint row = top + job / 16, column = left + job % 16;
        if (row >= count) continue;
        const uint row_of_x = uint((RowOfX(x, x_stride, row) - a.x) / XStride());
        const float value = results[at + ElementAt(job)] * InverseOf(weight_scales[column]);
        StoreElement(y, y_stride, head, row, first + column, value * Floats(scales).at[row_of_x]);
    }
    subgroupBarrier();
}

void StoreTile(uint64_t x, uint64_t x_stride, uint64_t y, uint64_t y_stride, uint head, uint first,
               uint count, uint lane, Sums sums) {
    for (uint turn = 0; turn < kSubgroups; turn += kStoring) {
        const bool mine = gl_SubgroupID / kStoring * kStoring == turn && !IsIdle();
        [[unroll]] for (uint j = 0; j < kEachM; ++j) {
            [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                if (!mine) continue;
                StoreFragment(x, x_stride, y, y_stride, head, first, count, 16 * FragmentM(j),
                              16 * FragmentN(i), sums.of[j * kEachN + i]);
            }
        }
        barrier();
    }
}
