// Of tile.comp: products of f16 by matrix units. x is an address among the halves of x, as
// halve_x.comp has them: rows padded to 32 columns, each times a power of two that takes its peak to
// [2^14, 2^15). A row of the weight is multiplied by one, too, by a bound of its elements that its
// scales give. So nothing overflows, and what f16 loses below is 2^-28 of the largest. The sums, of
// float32, are multiplied by the inverses, which is exact.
#include "matrix.glsl"

layout(constant_id = 4) const uint kSubgroups = 4;

// A subgroup has the fragments of 16 x 16 at kEachN columns and kEachM rows of fragments.
const uint kFragmentsN = kWide / 16, kFragmentsM = kTile / 16;
const uint kGroupsN = kSubgroups < kFragmentsN ? kSubgroups : kFragmentsN;
const uint kGroupsM = kSubgroups < kFragmentsN ? 1 : kSubgroups / kFragmentsN;
const uint kEachN = kFragmentsN / kGroupsN, kEachM = (kFragmentsM + kGroupsM - 1) / kGroupsM;

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
// What takes a number of these bits to [2^14, 2^15), as far as it can be; of infinity and NaN 0.
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

// Columns [begin, begin + kDeep) of rows [first, ...) of the matrix that begins with row `head`.
void LoadWeights(uint head, uint first, uint begin, uint lane) {
    const uint each = kDeep / UNIT, units = (a.cols + UNIT - 1) / UNIT;
    for (uint job = lane; job < kWide * each; job += kSize) {
        const uint row = job / each, part = job % each, unit = begin / UNIT + part;
        vec4 w[QUADS];
        [[unroll]] for (uint j = 0; j < QUADS; ++j) w[j] = vec4(0);
        if (unit < units) Decode(WeightAt(head + min(first + row, a.n - 1)), unit, w);
        const float scale = weight_scales[row];
        [[unroll]] for (uint j = 0; j < QUADS; ++j) {
            half_weights[row * kHalfStride + part * QUADS + j] = f16vec4(w[j] * scale);
        }
    }
}

void LoadColumns(uint64_t x, uint64_t x_stride, uint count, uint begin, uint lane) {
    for (uint job = lane; job < kTile * kDeep / 8; job += kSize) {
        const uint row = job / (kDeep / 8), eight = job % (kDeep / 8);
        uvec4 bits = uvec4(0);
        if (row < count) bits = Words4(RowOfX(x, x_stride, row)).at[begin / 8 + eight];
        const uint to = row * kHalfStride + 2 * eight;
        half_columns[to] = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
        half_columns[to + 1] = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
    }
}

uint FragmentN(uint i) { return gl_SubgroupID % kGroupsN + kGroupsN * i; }
uint FragmentM(uint j) { return gl_SubgroupID / kGroupsN + kGroupsM * j; }

void Clear(out Sums sums) {
    [[unroll]] for (uint j = 0; j < kEachM; ++j) {
        if (FragmentM(j) >= kFragmentsM) continue;
        [[unroll]] for (uint i = 0; i < kEachN; ++i) {
            ClearMatrix(sums.of[j * kEachN + i], 16 * FragmentM(j), 16 * FragmentN(i));
        }
    }
}

// sums += products of the columns loaded.
void AddProducts(uint lane, inout Sums sums) {
    [[unroll]] for (uint k = 0; k < kDeep; k += 16) {
        MatrixWeights w[kEachN];
        [[unroll]] for (uint i = 0; i < kEachN; ++i) LoadWeightRows(w[i], 16 * FragmentN(i), k);
        [[unroll]] for (uint j = 0; j < kEachM; ++j) {
            if (FragmentM(j) >= kFragmentsM) continue;
            MatrixRows rows;
            LoadRows(rows, 16 * FragmentM(j), k);
            [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                MultiplyAdd(rows, w[i], sums.of[j * kEachN + i]);
            }
        }
    }
}

void StoreTile(uint64_t x, uint64_t x_stride, uint64_t y, uint64_t y_stride, uint head, uint first,
               uint count, uint lane, Sums sums) {
    [[unroll]] for (uint j = 0; j < kEachM; ++j) {
        if (FragmentM(j) >= kFragmentsM) continue;
        [[unroll]] for (uint i = 0; i < kEachN; ++i) {
            StoreMatrix(sums.of[j * kEachN + i], 16 * FragmentM(j), 16 * FragmentN(i));
        }
    }
    barrier();
    const uint64_t scales = a.x + uint64_t(a.scales_at) * 256;
    for (uint job = lane; job < count * kWide; job += kSize) {
        const uint row = job / kWide, column = job % kWide;
        const uint at = uint((RowOfX(x, x_stride, row) - a.x) / XStride());
        const float value = results[row * kResultStride + column] * InverseOf(weight_scales[column]);
        StoreElement(y, y_stride, head, row, first + column, value * Floats(scales).at[at]);
    }
}
