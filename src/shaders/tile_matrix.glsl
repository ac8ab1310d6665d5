// Part of tile.comp: products of f16 on matrix units. x is an address within the halves of x, as
// written by halve_x.comp: rows padded to 32 columns, each multiplied by a power of two that scales
// its peak to [2^14, 2^15). Each row of the weight is scaled likewise, by a bound of its elements
// that follows from its block scales. So nothing overflows, and f16 loses less than 2^-28 of the
// largest element. The float32 sums are multiplied by the inverses, which is exact.
//
// A kPlain product of few rows may be divided along the columns, so that it has more workgroups:
// workgroup z of gl_NumWorkGroups.z sums a part of the columns. The last workgroup of a tile to
// finish adds the parts in order. The bits depend on the number of parts, and on no other size.
layout(constant_id = 4) const uint kSubgroups = 4;
layout(constant_id = 7) const uint kDown = 2;     // subgroups that divide the rows of x
layout(constant_id = 8) const uint kBuffers = 1;  // 2: one barrier per kDeep columns
#define MATRIX_BUFFERS kBuffers
#define MATRIX_STORING (kBuffers == 1 ? 8 : 4)
#include "matrix.glsl"
#include "last.glsl"

// A subgroup computes the 16 x 16 fragments at kEachN columns and kEachM rows of fragments.
const uint kFragmentsN = kWide / 16, kFragmentsM = kTile / 16;
const uint kGroupsM = kDown < kFragmentsM ? kDown : kFragmentsM;
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

const uint kMostParts = 16;  // a multiple of 4
// The columns that this workgroup sums: [x, y). A part is a multiple of 256 columns.
uint Parts() { return kKind == kPlain ? gl_NumWorkGroups.z : 1; }
uvec2 PartOfColumns() {
    if (Parts() == 1) return uvec2(0, a.cols);
    const uint each = (a.cols + Parts() * 256 - 1) / (Parts() * 256) * 256;
    return min(uvec2(0, each) + gl_WorkGroupID.z * each, a.cols);
}

void BeginTile(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint lane) {}

// Sets the scales of the rows of the weight, by bounds of their elements in these columns.
void ScaleRows(uint head, uint first, uvec2 columns, uint lane) {
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
    const uint each = kSize > kWide ? kSize / kWide : 1;
    const uint last = (max(columns.y, 1) - 1) / UNIT;
    for (uint row = lane / each; row < kWide; row += kSize / each) {
        const WeightRow at = WeightAt(head + min(first + row, a.n - 1));
        uint bound = 0;
        // Several independent loads at a time hide their latency.
        const uint at_once = 4;
        for (uint unit = columns.x / UNIT + lane % each; unit <= last; unit += at_once * each) {
            [[unroll]] for (uint i = 0; i < at_once; ++i) {
                const Scales s = ScalesOf(at, min(unit + i * each, last));
                const uvec2 size = floatBitsToUint(abs(s.scale) * most + abs(s.offset));
                bound = max(bound, max(size.x, size.y) & 0x7fffffffu);
            }
        }
        atomicMax(weight_bounds[row], bound);
    }
    barrier();
    for (uint row = lane; row < kWide; row += kSize) {
        weight_scales[row] = PowerOfTwo(ShiftOf(weight_bounds[row]));
    }
#else
    for (uint row = lane; row < kWide; row += kSize) weight_scales[row] = 1;
#endif
    barrier();
}

// A unit of a weight as it is stored. Units are decoded after the products of earlier columns,
// which hide the latency of the loads.
struct Stored {
#if PLAIN == 16
    uvec4 bits;
#elif GRID > 0
    uint codes[QUADS];
    vec2 scale;
#else
    PackedCodes codes;
    uvec2 scales;
#endif
};
Stored StoredAt(WeightRow row, uint unit) {
    Stored stored;
#if PLAIN == 16
    stored.bits = Words4(row.plane[0]).at[unit];
#elif GRID > 0
    CodesOf(row, unit, stored.codes);
    stored.scale = ScalesOf(row, unit).scale;
#else
    stored.codes = PackedCodesOf(row, unit);
    stored.scales = ScaleWordsOf(row, unit);
#endif
    return stored;
}
// Decodes the unit and multiplies it by `scale`, a power of two. inside: false gives zeros.
void DecodeStored(Stored stored, uint unit, bool inside, float scale, out f16vec4 w[QUADS]) {
#if PLAIN == 16
    const uvec4 bits = inside ? stored.bits : uvec4(0);
    w[0] = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
    w[1] = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
#else
    uint codes[QUADS];
#if GRID > 0
    codes = stored.codes;
    Scales s;
    s.scale = stored.scale;
    s.offset = vec2(0);
    const float zero = ZERO;
#else
    CodesFrom(stored.codes, codes);
    const Scales s = ScalesFrom(stored.scales, unit);
    const float zero = float(ZeroFrom(stored.scales));
#endif
    const vec2 factor = inside ? s.scale * scale : vec2(0);
    const vec2 offset = inside ? (s.offset - zero * s.scale) * scale : vec2(0);
    [[unroll]] for (int j = 0; j < QUADS; ++j) {
        const int part = UNIT == 32 ? j >> 2 : 0;
        w[j] = f16vec4(fma(BytesOf(codes[j]), vec4(factor[part]), vec4(offset[part])));
    }
#endif
}

// The part of the next columns that an invocation loads, of kWide rows of the weight and of kTile
// rows of x. An invocation loads the same columns of each of its rows.
const uint kUnits = kDeep / UNIT, kEights = kDeep / 8;
const uint kWeightJobs = (kWide * kUnits + kSize - 1) / kSize;
const uint kColumnJobs = (kTile * kEights + kSize - 1) / kSize;
struct Brought {
    Stored weights[kWeightJobs];
    uvec4 columns[kColumnJobs];
};
struct Places { uint rows[kColumnJobs]; };  // bytes from x
uint WeightRowOf(uint lane, uint job) { return lane / kUnits + job * (kSize / kUnits); }
uint ColumnRowOf(uint lane, uint job) { return lane / kEights + job * (kSize / kEights); }

// Fetches columns [begin, begin + kDeep) of rows [first, ...) of the matrix that begins with row
// `head`. Columns beyond the last hold other columns' values; Place() makes their weights zero.
void Fetch(uint head, uint first, uint64_t x, Places places, uint begin, uint lane,
           out Brought next) {
    const uint unit = min(begin / UNIT + lane % kUnits, (a.cols - 1) / UNIT);
    const uint eight = min(begin / 8 + lane % kEights, (a.cols - 1) / 8);
    [[unroll]] for (uint i = 0; i < kWeightJobs; ++i) {
        const uint row = min(first + min(WeightRowOf(lane, i), kWide - 1), a.n - 1);
        next.weights[i] = StoredAt(WeightAt(head + row), unit);
    }
    [[unroll]] for (uint i = 0; i < kColumnJobs; ++i) {
        next.columns[i] = Words4(x + places.rows[i]).at[eight];
    }
}
// Writes fetched columns to buffer `side`.
void Place(uint lane, uint side, uint begin, Brought next) {
    [[unroll]] for (uint i = 0; i < kColumnJobs; ++i) {
        const uint row = ColumnRowOf(lane, i);
        const uint to = (side * kTile + row) * kHalfStride + 2 * (lane % kEights);
        const uvec4 bits = next.columns[i];
        if (row >= kTile) continue;
        half_columns[to] = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
        half_columns[to + 1] = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
    }
    const uint unit = begin / UNIT + lane % kUnits;
    [[unroll]] for (uint i = 0; i < kWeightJobs; ++i) {
        const uint row = WeightRowOf(lane, i);
        if (row >= kWide) continue;
        f16vec4 w[QUADS];
        DecodeStored(next.weights[i], unit, unit <= (a.cols - 1) / UNIT, weight_scales[row], w);
        const uint to = (side * kWide + row) * kHalfStride + lane % kUnits * QUADS;
        [[unroll]] for (uint j = 0; j < QUADS; ++j) half_weights[to + j] = w[j];
    }
}

const uint kBusy = kGroupsN * kGroupsM;
bool IsBusy() { return kBusy >= kSubgroups || gl_SubgroupID < kBusy; }
// (An idle subgroup has another subgroup's fragments, and only clears its own registers for them.)
uint FragmentN(uint i) { return gl_SubgroupID % kBusy % kGroupsN * kEachN + i; }
uint FragmentM(uint j) { return gl_SubgroupID % kBusy / kGroupsN * kEachM + j; }

void Clear(out Sums sums) {
    [[unroll]] for (uint j = 0; j < kEachM; ++j) {
        [[unroll]] for (uint i = 0; i < kEachN; ++i) {
            ClearMatrix(sums.of[j * kEachN + i], 16 * FragmentM(j), 16 * FragmentN(i));
        }
    }
}

// sums += products of the columns in buffer `side`.
void AddProducts(uint side, inout Sums sums) {
    const uint weights = side * kWide, columns = side * kTile;
    if (IsBusy()) {
        [[unroll]] for (uint k = 0; k < kDeep; k += 16) {
            MatrixWeights w[kEachN];
            [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                LoadWeightRows(w[i], weights + 16 * FragmentN(i), k);
            }
            [[unroll]] for (uint j = 0; j < kEachM; ++j) {
                MatrixRows rows;
                LoadRows(rows, columns + 16 * FragmentM(j), k);
                [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                    MultiplyAdd(rows, w[i], sums.of[j * kEachN + i]);
                }
            }
        }
    }
}

// The next columns are loaded while the current ones are multiplied.
void AddAll(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint lane,
            inout Sums sums) {
    const uvec2 part = PartOfColumns();
    Places places;
    [[unroll]] for (uint i = 0; i < kColumnJobs; ++i) {
        places.rows[i] = uint(RowOfX(x, x_stride, min(ColumnRowOf(lane, i), kTile - 1)) - x);
    }
    Brought next;
    Fetch(head, first, x, places, part.x, lane, next);
    ScaleRows(head, first, part, lane);
    uint side = 0;
    if (kBuffers > 1) {
        Place(lane, side, part.x, next);
        barrier();
    }
    for (uint begin = part.x; begin < part.y; begin += kDeep) {
        const uint after = begin + kDeep;
        if (kBuffers == 1) {
            Place(lane, side, begin, next);
            barrier();
        }
        if (after < part.y) Fetch(head, first, x, places, after, lane, next);
        AddProducts(side, sums);
        if (kBuffers > 1) {
            side ^= 1;
            if (after < part.y) Place(lane, side, after, next);
        }
        barrier();
    }
}

// The row of the halves of x for row `row` of the tile.
uint RowNumber(uint row) {
    if (kKind == kHeads) return slots[row] * gl_NumWorkGroups.z + gl_WorkGroupID.z;
    return kKind == kExperts && a.slots >> 16 != 0 ? slots[row] / (a.slots & 0xffff) : slots[row];
}
// A part's sum of a row of the step and a column of the output.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats {
    float at[];
};
uint64_t PartialAt(uint part, uint row, uint column) {
    return a.partial + ((uint64_t(part) * a.rows + slots[row]) * a.n + column) * 4;
}

// Orders accesses to `results` within a subgroup. An emulated result is read by the invocation that
// wrote it. All subgroups call it: lavapipe ends a workgroup too early if only some of its
// subgroups come to a barrier.
void OrderResults() {
#ifndef EMULATED
    subgroupBarrier();
#endif
}

void StoreFragment(uint64_t y, uint64_t y_stride, uint head, uint first, uint count, uint top,
                   uint left, MatrixSums sums, bool mine) {
    const uint64_t scales = a.x + uint64_t(a.scales_at) * 256;
    uint at = 0;
    if (mine) at = StoreMatrix(sums);
    OrderResults();
    for (uint job = gl_SubgroupInvocationID; mine && job < 256; job += kSize / kSubgroups) {
        const uint row = top + job / 16, column = left + job % 16;
        if (row < count && first + column < a.n) {
            const float value = results[at + ElementAt(job)] * InverseOf(weight_scales[column]);
            const float scaled = value * Floats(scales).at[RowNumber(row)];
            if (Parts() == 1) {
                StoreElement(y, y_stride, head, row, first + column, scaled);
            } else {
                SharedFloats(PartialAt(gl_WorkGroupID.z, row, first + column)).at[0] = scaled;
            }
        }
    }
    OrderResults();
}

// Called after a part of the tile is stored: the last workgroup to call it adds all parts.
void AddParts(uint64_t y, uint64_t y_stride, uint head, uint first, uint count, uint lane) {
    const uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint parts = Parts();
    if (!ComesLast(a.arrivals + tile * 4, parts, lane)) return;
    for (uint job = lane; job < count * kWide; job += kSize) {
        const uint row = job / kWide, column = first + job % kWide;
        if (column < a.n) {
            precise float sum = 0;
            [[unroll]] for (uint part = 0; part < kMostParts; part += 4) {
                if (part < parts) {
                    vec4 four;
                    [[unroll]] for (uint i = 0; i < 4; ++i) {
                        const uint one = min(part + i, parts - 1);
                        four[i] = SharedFloats(PartialAt(one, row, column)).at[0];
                    }
                    [[unroll]] for (uint i = 0; i < 4; ++i) {
                        if (part + i < parts) sum = sum + four[i];
                    }
                }
            }
            StoreElement(y, y_stride, head, row, column, sum);
        }
    }
}

void StoreTile(uint64_t x, uint64_t x_stride, uint64_t y, uint64_t y_stride, uint head, uint first,
               uint count, uint lane, Sums sums) {
    for (uint turn = 0; turn < kSubgroups; turn += kStoring) {
        const bool mine = gl_SubgroupID / kStoring * kStoring == turn && IsBusy();
        [[unroll]] for (uint j = 0; j < kEachM; ++j) {
            [[unroll]] for (uint i = 0; i < kEachN; ++i) {
                StoreFragment(y, y_stride, head, first, count, 16 * FragmentM(j),
                              16 * FragmentN(i), sums.of[j * kEachN + i], mine);
            }
        }
        barrier();
    }
    if (Parts() > 1) AddParts(y, y_stride, head, first, count, lane);
}
