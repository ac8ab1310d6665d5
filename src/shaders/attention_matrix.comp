//: attention_matrix : coopmat
//: attention_matrix_emulated -DEMULATED
// Attention of a tile of queries on matrix units: as attention.comp for blocks of rows, without
// lists. The products are of float16, with float32 sums:
//
//   - A query is multiplied by a power of two that scales its largest element to [2^14, 2^15), and
//     rounded to f16.
//   - Keys and values of an f16 cache are used unchanged; other types are rounded to f16. A key (or
//     value) with elements beyond the range of f16 is first multiplied by a power of two. This
//     power depends on nothing else, and is divided out of the key's scores, or multiplied into the
//     value's weight.
//   - A weight is 2^(score - top + kBias), where scores are in units of log(2), and `top` is a
//     score near the largest so far. If a tile has a score above top + kHeadroom, `top` becomes the
//     largest score, and sums and totals of the row are multiplied by a number below 1. So weights
//     stay within f16, and most tiles need no such multiplication. The weights' total is in
//     float32, of unrounded weights.
//
// All subgroups run all barriers, including subgroup barriers, because lavapipe requires it.
//
// Subgroups form a grid: kDown rows of 16 pairs each, and kAcross columns that divide a row's
// fragments of keys and of values' dims. Tiles of keys begin at multiples of kKeys. A tile that is
// hidden from a row changes none of its bits.
//
// Workgroup (tile of pairs, KV head, block).
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 1) const uint kKeyType = 1;  // of the caches
layout(constant_id = 2) const uint kKeyDims = 64;
layout(constant_id = 3) const uint kValueDims = 64;
layout(constant_id = 4) const uint kFirstDims = 64;  // as in attention.comp
layout(constant_id = 5) const uint kPairs = 64;      // a multiple of 16
layout(constant_id = 6) const uint kKeys = 64;       // per tile: 32 or 64
layout(constant_id = 7) const uint kSlice = 64;  // most dims of keys or values in shared memory; a
                                                 // multiple of 16
layout(constant_id = 8) const uint kAcross = 1;
// Subgroups hold their queries in registers; only with kKeyDims <= kSlice.
layout(constant_id = 9) const bool kHeld = false;
layout(constant_id = 10) const uint kValueType = 1;
// The rows of a tile of values in shared memory are dims instead of keys. So a matrix of values is
// loaded 16 bytes at a time on GPUs that load a matrix of rows element by element.
layout(constant_id = 11) const bool kByDims = false;
layout(constant_id = 12) const bool kSlopes = false;  // `sinks` has the heads' slopes (ALiBi)

layout(push_constant, scalar) uniform Args {
    Floats q, q_more;
    uint64_t k_cache, v_cache;
    Floats result, unused, sinks;  // sinks: 0 if there are none
    Blocks blocks;
    Sequences sequences;
    Ints pages;
    uint heads, first_head, group, first_kv_head, kv_heads;
    uint page_tokens, window;
    uint block_count;
    float scale, soft_cap;
    uint span;  // rows per tile of blocks; a block that begins no tile is skipped
};

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Words4 {
    uvec4 at[];
};

// Unrolls loops over registers. When emulated, registers are in memory, and unrolled code takes
// long to compile.
#ifdef EMULATED
const bool kEmulated = true;
#define UNROLL dont_unroll
#else
const bool kEmulated = false;
#define UNROLL unroll
#endif
const float kHidden = -3.0e38, kLeastSeen = -2.9e38;  // score of a hidden key; bound of others
const float kLog2E = 1.44269504;
const float kBias = 8.0, kHeadroom = 7.0;
const uint kNoSlot = 0xffffffffu;
const float kMostHalf = 65504.0;
// Whether elements of a cache may exceed f16.
const bool kChecksKeys = kKeyType != kF16, kChecksValues = kValueType != kF16;
const bool kChecks = kChecksKeys || kChecksValues;

const uint kDown = kPairs / 16, kSubgroups = kDown * kAcross, kSize = kThreads / kSubgroups;

// Fragments of dims, in slices of about equal size.
const uint kSliceFragments = kSlice / 16;
const uint kKeyFragments = (kKeyDims + 15) / 16, kValueFragments = (kValueDims + 15) / 16;
const uint kKeySlices = (kKeyFragments + kSliceFragments - 1) / kSliceFragments;
const uint kValueSlices = (kValueFragments + kSliceFragments - 1) / kSliceFragments;
const uint kKeySlice = (kKeyFragments + kKeySlices - 1) / kKeySlices;  // fragments
const uint kValueSlice = (kValueFragments + kValueSlices - 1) / kValueSlices;
const uint kMostSlice = kKeySlice > kValueSlice ? kKeySlice : kValueSlice;

// The array `halves` holds a slice of a tile of keys or values, then weights, then queries. If
// registers hold the queries, `halves` has them only at the start, in place of the tile and
// weights. Strides are in groups of four elements, and chosen to avoid bank conflicts.
// kKeysStride: of rows of keys, which are weights of a pair or values of a dim.
const uint kTileStride = kMostSlice * 4 + 2, kKeysStride = kKeys / 4 + 2;
const uint kQueryStride = kKeyFragments * 4 + 2;
const uint kRowFours = kKeys * kTileStride;
const uint kDimFours = kByDims ? kValueSlice * 16 * kKeysStride : 0;
const uint kWeightsAt = kRowFours > kDimFours ? kRowFours : kDimFours;
const uint kTileFours = kWeightsAt + kPairs * kKeysStride;
const uint kQueryFours = kPairs * kQueryStride;
const bool kQueriesFirst = kHeld && !kEmulated;
const uint kQueriesAt = kQueriesFirst ? 0 : kTileFours;
const uint kLargerFours = kTileFours > kQueryFours ? kTileFours : kQueryFours;
const uint kHalfFours = kQueriesFirst ? kLargerFours : kTileFours + kQueryFours;
// The array `floats` holds scores. Each subgroup has a block of 16 pairs and 16 columns.
const uint kScoreColumns = kKeys > 16 * kAcross ? kKeys : 16 * kAcross;
const uint kScoreStride = kScoreColumns / 4 + 2, kFloatFours = kPairs * kScoreStride;
// Numbers of a subgroup's fragments: of scores, of the values of a slice, and of all values.
const uint kEachKeys = (kKeys / 16 + kAcross - 1) / kAcross;
const uint kEachValues = (kValueSlice + kAcross - 1) / kAcross;
const uint kOfValues = kValueSlices * kEachValues;
const uint kMatrices = kEachKeys + kOfValues + 1;
#include "fragments.glsl"

// Softmax: kLanes invocations of a subgroup per pair. A pair's total has kParts parts. The number
// of parts does not depend on kLanes.
const uint kParts = 8, kWantedLanes = kThreads / kPairs;
const uint kLanes = kWantedLanes < kParts ? kWantedLanes : kParts;
const uint kOwnParts = kParts / kLanes, kOwnFours = kKeys / 4 / kLanes;

shared uint slots[2 * kKeys];  // slots of two successive tiles
shared float scales[kChecks ? 2 * kKeys : 1];  // scales of keys, then of values
shared float lanes[kPairs * kLanes];
shared float factors[kPairs];
// large_tile: number of the last tile with elements beyond f16, in keys and in values. moved_tile:
// number of the last tile in which a row's sums change by a factor.
shared uint large_tile[2];
shared uint moved_tile[kDown];

// The rows and heads of this workgroup.
uint row_begin, head_begin, head_count, first_pair, pair_count, first_position, first_page;
uint begin, end;  // of keys
// This invocation's pair and lane in the softmax, and the keys that the pair sees.
uint own_pair, own_lane;
bool works;
int least_key, last_key;
float own_slope;
float score_factor, top = kHidden;
float totals[kOwnParts];

uint RowOf(uint pair) { return (first_pair + pair) / head_count; }
uint HeadOf(uint pair) { return head_begin + (first_pair + pair) % head_count; }
bool IsPair(uint pair) { return first_pair + pair < pair_count; }
uint Invocation() { return gl_SubgroupID * kSize + gl_SubgroupInvocationID; }
uint Down() { return gl_SubgroupID / kAcross; }
uint Across() { return gl_SubgroupID % kAcross; }
// Whether the subgroup has pairs.
bool HasPairs() { return IsPair(16 * Down()); }
// 2^shift, for a shift of at most 126 up or down.
float PowerOfTwo(int shift) { return uintBitsToFloat(uint(shift + 127) << 23); }
// The exponent of a power of two, negated: 2^-3 gives 3.
int ShiftOf(float power) { return 127 - int(floatBitsToUint(power) >> 23); }
float InverseOf(float power) { return uintBitsToFloat((254u << 23) - floatBitsToUint(power)); }

bool Place() {
    const BlockEntry block = blocks.at[block_count - 1 - gl_WorkGroupID.z];
    const SequenceEntry sequence = sequences.at[block.sequence];
    const uint offset = uint(block.row_begin - sequence.row_begin);
    if (offset % span != 0) return false;
    const uint model_begin = (first_kv_head + gl_WorkGroupID.y) * group;  // heads of the model
    const uint low = max(model_begin, first_head);
    const uint high = min(model_begin + group, first_head + heads);
    if (high <= low) return false;
    head_begin = low - first_head;
    head_count = high - low;
    first_pair = gl_WorkGroupID.x * kPairs;
    pair_count = min(span, uint(sequence.row_count) - offset) * head_count;
    if (first_pair >= pair_count) return false;
    row_begin = uint(block.row_begin);
    first_position = uint(sequence.position) + offset;
    first_page = uint(sequence.first_page);
    const uint last_pair = min(kPairs, pair_count - first_pair) - 1;
    begin = FirstKeyOf(window, first_position + RowOf(0));
    end = first_position + RowOf(last_pair) + 1;
    own_pair = Invocation() / kLanes;
    own_lane = Invocation() % kLanes;
    works = own_pair < kPairs;
    const uint position = first_position + RowOf(own_pair);
    const bool sees = works && IsPair(own_pair);
    least_key = int(FirstKeyOf(window, position));
    last_key = sees ? int(position) : -1;
    own_slope = kSlopes && sees ? sinks.at[HeadOf(own_pair)] * kLog2E : 0.0;
    [[UNROLL]] for (uint i = 0; i < kOwnParts; ++i) totals[i] = 0.0;
    if (Invocation() < 2) large_tile[Invocation()] = 0;
    if (Invocation() < kDown) moved_tile[Invocation()] = 0;
    return true;
}

// Dims [d, d + 4) of a pair's query, zeros beyond its end.
vec4 QueryFour(uint pair, uint d) {
    vec4 four = vec4(0);
    if (!IsPair(pair) || d >= kKeyDims) return four;
    const uint at = (row_begin + RowOf(pair)) * heads + HeadOf(pair);
    const uint more_dims = kKeyDims - kFirstDims;
    if (kKeyDims % 4 == 0 && kFirstDims % 4 == 0) {
        const uint64_t first = uint64_t(q) + (uint64_t(at) * kFirstDims + d) * 4;
        const uint64_t more = uint64_t(q_more) + (uint64_t(at) * more_dims + d - kFirstDims) * 4;
        return Quads(d < kFirstDims ? first : more).at[0];
    }
    for (uint i = 0; i < 4 && d + i < kKeyDims; ++i) {
        four[i] = d + i < kFirstDims ? q.at[at * kFirstDims + d + i]
                                     : q_more.at[at * more_dims + d + i - kFirstDims];
    }
    return four;
}

// Writes the pairs' queries, scaled, to `halves`, and determines the factor of their scores.
void PlaceQueries() {
    uint peak = 0;
    [[dont_unroll]] for (uint four = own_lane; works && four < kKeyFragments * 4; four += kLanes) {
        const uvec4 bits = floatBitsToUint(abs(QueryFour(own_pair, 4 * four)));
        peak = max(peak, max(max(bits.x, bits.y), max(bits.z, bits.w)));
    }
    if (works) lanes[own_pair * kLanes + own_lane] = uintBitsToFloat(peak);
    subgroupBarrier();
    [[dont_unroll]] for (uint i = 0; works && i < kLanes; ++i) {
        peak = max(peak, floatBitsToUint(lanes[own_pair * kLanes + i]));
    }
    const int shift = peak >= 0x7f800000u ? 0 : clamp(14 - (int(peak >> 23) - 127), -120, 120);
    [[dont_unroll]] for (uint four = own_lane; works && four < kKeyFragments * 4; four += kLanes) {
        const vec4 x = QueryFour(own_pair, 4 * four) * PowerOfTwo(shift);
        halves[kQueriesAt + own_pair * kQueryStride + four] = f16vec4(x);
    }
    score_factor = PowerOfTwo(-shift) * (scale * (soft_cap != 0.0 ? 1.0 : kLog2E));
}

// Finds the rows of keys [first, first + kKeys) in the caches. half_of: which half of `slots`.
void FindSlots(uint first, uint half_of) {
    [[dont_unroll]] for (uint i = Invocation(); i < kKeys; i += kThreads) {
        const uint key = first + i;
        uint slot = kNoSlot;
        if (key >= begin && key < end) {
            const uint page = uint(pages.at[first_page + key / page_tokens]);
            slot = (page * kv_heads + gl_WorkGroupID.y) * page_tokens + key % page_tokens;
        }
        slots[half_of * kKeys + i] = slot;
    }
}

// The slices of the keys or values of a tile.
struct Slices {
    uint64_t cache;
    uint type;
    uint row_dims, dims;    // dims of a row of the cache, and how many of them are used
    uint fragments, count;  // fragments of a slice, and number of slices
    uint half_of;           // the tile's half of `slots`
    uint scales_at;         // in `scales`
    bool by_dims;           // whether the rows of `halves` are dims
    bool scaled;            // whether `scales` has numbers other than 1
};
Slices KeysOf(uint half_of) {
    return Slices(k_cache, kKeyType, kKeyDims, kKeyDims, kKeySlice, kKeySlices, half_of, 0, false,
                  false);
}
// In latent attention, values are the first dims of the keys.
Slices ValuesOf(uint half_of) {
    const uint row_dims = kFirstDims == kKeyDims ? kValueDims : kKeyDims;
    return Slices(v_cache, kValueType, row_dims, kValueDims, kValueSlice, kValueSlices, half_of,
                  kKeys, kByDims, false);
}

// An invocation loads a slice in jobs, each of two groups of four elements: neighbors in a row, or,
// by dims, the same dims of two keys. By dims, jobs 2 i and 2 i + 1 have the same dims of four keys.
const uint kRowJobs = (kKeys * kMostSlice * 2 + kThreads - 1) / kThreads;
const uint kDimJobs = kByDims ? 2 * ((kKeys * kValueSlice + kThreads - 1) / kThreads) : 0;
const uint kMostJobs = kRowJobs > kDimJobs ? kRowJobs : kDimJobs;
uint JobsOf(Slices tile) { return tile.by_dims ? kDimJobs : kRowJobs; }

bool IsLarge(vec4 x) { return any(greaterThan(abs(x), vec4(kMostHalf))); }

// A key's slot in a cache; kNoSlot: the workgroup does not read the key.
uint SlotOf(Slices tile, uint key) {
    return key < kKeys ? slots[tile.half_of * kKeys + key] : kNoSlot;
}
uint64_t RowAt(Slices tile, uint slot) {
    return tile.cache + uint64_t(slot) * RowBytes(tile.type, tile.row_dims);
}

// Elements [d, d + 4) of a key's row in f16. Returns whether one is beyond f16.
bool LoadRounded(Slices tile, uint64_t row, uint key, uint d, out f16vec4 four) {
    vec4 x = LoadFour(row, tile.type, d, tile.dims);
    if (tile.scaled) x *= scales[tile.scales_at + key];
    four = f16vec4(x);
    return tile.type != kF16 && IsLarge(x);
}

// As LoadJob, for elements [d, d + 8) of a key.
bool LoadOfRow(Slices tile, uint key, uint d, out f16vec4 low, out f16vec4 high) {
    low = high = f16vec4(0);
    const uint slot = SlotOf(tile, key);
    if (slot == kNoSlot || d >= tile.dims) return false;
    const uint64_t row = RowAt(tile, slot);
    const bool whole = tile.row_dims % 8 == 0 && tile.dims % 8 == 0;
    if (whole && (tile.type == kF16 || tile.type == kBF16)) {
        const uvec4 bits = Words4(row).at[d / 8];
        if (tile.type == kF16) {
            low = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
            high = f16vec4(unpackFloat2x16(bits.z), unpackFloat2x16(bits.w));
            return false;
        }
        vec4 x = FromHalves(tile.type, bits.x, bits.y), y = FromHalves(tile.type, bits.z, bits.w);
        if (tile.scaled) {
            x *= scales[tile.scales_at + key];
            y *= scales[tile.scales_at + key];
        }
        low = f16vec4(x);
        high = f16vec4(y);
        return IsLarge(x) || IsLarge(y);
    }
    const bool large = LoadRounded(tile, row, key, d, low);
    return LoadRounded(tile, row, key, d + 4, high) || large;
}

// As LoadJob, for elements [d, d + 4) of a key.
bool LoadOfDims(Slices tile, uint key, uint d, out f16vec4 four) {
    four = f16vec4(0);
    const uint slot = SlotOf(tile, key);
    if (slot == kNoSlot || d >= tile.dims) return false;
    const uint64_t row = RowAt(tile, slot);
    if (tile.type == kF16 && tile.row_dims % 4 == 0 && tile.dims % 4 == 0) {
        const uvec2 bits = Words2(row).at[d / 4];
        four = f16vec4(unpackFloat2x16(bits.x), unpackFloat2x16(bits.y));
        return false;
    }
    return LoadRounded(tile, row, key, d, four);
}

// The first of four keys and the first dim of jobs 2 i and 2 i + 1 by dims. Eight invocations have
// 32 keys of the same dims: enough for different banks, and few enough that a subgroup reads many
// dims of a key.
uvec2 KeyAndDim(Slices tile, uint i) {
    const uint number = Invocation() + i * kThreads, fours = 4 * tile.fragments;
    return uvec2(number / (8 * fours) * 32 + number % 8 * 4, number / 8 % fours * 4);
}

// Loads job i of a slice of a tile, zeros for keys that the workgroup does not read. Returns
// whether it has elements beyond f16.
bool LoadJob(Slices tile, uint slice, uint i, out f16vec4 low, out f16vec4 high) {
    const uint first_dim = slice * tile.fragments * 16;
    if (tile.by_dims) {
        const uvec2 at = KeyAndDim(tile, i / 2);
        const uint key = at.x + i % 2 * 2;
        const bool large = LoadOfDims(tile, key, first_dim + at.y, low);
        return LoadOfDims(tile, key + 1, first_dim + at.y, high) || large;
    }
    const uint eights = 2 * tile.fragments, job = Invocation() + i * kThreads;
    return LoadOfRow(tile, job / eights, first_dim + job % eights * 8, low, high);
}
void PlaceJob(Slices tile, uint i, f16vec4 low, f16vec4 high) {
    const uint eights = 2 * tile.fragments;
    const uint job = Invocation() + i * kThreads, key = job / eights;
    if (key >= kKeys) return;
    const uint to = key * kTileStride + 2 * (job % eights);
    halves[to] = low;
    halves[to + 1] = high;
}
// Jobs 2 i and 2 i + 1 by dims: a to d are four dims of four keys.
void PlaceByDims(Slices tile, uint i, f16vec4 a, f16vec4 b, f16vec4 c, f16vec4 d) {
    const uvec2 at = KeyAndDim(tile, i);
    if (at.x >= kKeys) return;
    const uint to = at.y * kKeysStride + at.x / 4;
    halves[to] = f16vec4(a.x, b.x, c.x, d.x);
    halves[to + kKeysStride] = f16vec4(a.y, b.y, c.y, d.y);
    halves[to + 2 * kKeysStride] = f16vec4(a.z, b.z, c.z, d.z);
    halves[to + 3 * kKeysStride] = f16vec4(a.w, b.w, c.w, d.w);
}

// Fetch loads a slice to registers. PlaceSlice writes it to `halves` and returns whether it has
// elements beyond f16. When emulated, PlaceSlice does both.
#ifdef EMULATED
struct Brought { uint slice; };
void Fetch(Slices tile, uint slice, out Brought next) { next.slice = slice; }
bool PlaceSlice(Slices tile, Brought next) {
    bool large = false;
    [[dont_unroll]] for (uint i = 0; i < JobsOf(tile); ++i) {
        f16vec4 low, high, third, fourth;
        if (LoadJob(tile, next.slice, i, low, high)) large = true;
        if (!tile.by_dims) {
            PlaceJob(tile, i, low, high);
            continue;
        }
        ++i;
        if (LoadJob(tile, next.slice, i, third, fourth)) large = true;
        PlaceByDims(tile, i / 2, low, high, third, fourth);
    }
    return large;
}
#else
struct Brought {
    f16vec4 of[2 * kMostJobs];
    bool large;
};
void Fetch(Slices tile, uint slice, out Brought next) {
    next.large = false;
    [[unroll]] for (uint i = 0; i < kMostJobs; ++i) {
        if (i >= JobsOf(tile)) continue;
        if (LoadJob(tile, slice, i, next.of[2 * i], next.of[2 * i + 1])) next.large = true;
    }
}
bool PlaceSlice(Slices tile, Brought next) {
    if (tile.by_dims) {
        [[unroll]] for (uint i = 0; i < kDimJobs; i += 2) {
            PlaceByDims(tile, i / 2, next.of[2 * i], next.of[2 * i + 1], next.of[2 * i + 2],
                        next.of[2 * i + 3]);
        }
        return next.large;
    }
    [[unroll]] for (uint i = 0; i < kRowJobs; ++i) {
        PlaceJob(tile, i, next.of[2 * i], next.of[2 * i + 1]);
    }
    return next.large;
}
#endif

// Sets large_tile to `number` if the tile has elements beyond f16. large: whether its first slice
// has.
void NoteLarge(Slices tile, bool large, uint number) {
    const uint jobs = JobsOf(tile);
    [[dont_unroll]] for (uint i = jobs; tile.count > 1 && i < tile.count * jobs; ++i) {
        f16vec4 low, high;
        if (LoadJob(tile, i / jobs, i % jobs, low, high)) large = true;
    }
    if (large) large_tile[tile.scales_at / kKeys] = number;
}
// Computes the scales of the tile's keys or values from their largest finite elements. Rarely
// called.
void FindScales(Slices tile) {
    [[dont_unroll]] for (uint key = Invocation(); key < kKeys; key += kThreads) {
        const uint slot = slots[tile.half_of * kKeys + key];
        const uint64_t row = tile.cache + uint64_t(slot) * RowBytes(tile.type, tile.row_dims);
        uint peak = 0;
        [[dont_unroll]] for (uint d = 0; slot != kNoSlot && d < tile.dims; d += 4) {
            const uvec4 bits = floatBitsToUint(abs(LoadFour(row, tile.type, d, tile.dims)));
            [[UNROLL]] for (uint i = 0; i < 4; ++i) {
                peak = max(peak, bits[i] < 0x7f800000u ? bits[i] : 0);
            }
        }
        const bool large = uintBitsToFloat(peak) > kMostHalf;
        scales[tile.scales_at + key] = large ? PowerOfTwo(14 - (int(peak >> 23) - 127)) : 1.0;
    }
}
// If the tile has elements beyond f16, scales its first slice, which is in `halves`.
void ScaleLarge(inout Slices tile, uint number) {
    if (large_tile[tile.scales_at / kKeys] != number) return;
    FindScales(tile);
    barrier();
    tile.scaled = true;
    Brought again;
    Fetch(tile, 0, again);
    PlaceSlice(tile, again);
    barrier();
}

struct Held { MatrixA of[kHeld ? kKeyFragments : 1]; };
struct Scores { MatrixSums of[kEachKeys]; };
struct Values { MatrixSums of[kOfValues]; };
// The first fragment of a slice of values. (RADV keeps the loop over a single slice as a loop, and
// would select registers at run time.)
uint FirstOf(uint slice) { return kValueSlices == 1 ? 0 : slice * kEachValues; }

void AddScores(uint slice, Held held, inout Scores scores) {
    if (!HasPairs()) return;
    [[UNROLL]] for (uint f = 0; f < kKeySlice; ++f) {
        const uint fragment = slice * kKeySlice + f;
        if (fragment >= kKeyFragments) continue;
        MatrixA queries;
        if (kHeld) {
            CopyA(held.of[f], queries);
        } else {
            LoadA(queries, kQueriesAt + 16 * Down() * kQueryStride + 4 * fragment, kQueryStride);
        }
        [[UNROLL]] for (uint j = 0; j < kEachKeys; ++j) {
            const uint key = 16 * (Across() + j * kAcross);
            if (key >= kKeys) continue;
            MatrixB keys;
            LoadColumnsB(keys, key * kTileStride + 4 * f, kTileStride);
            MultiplyAdd(queries, keys, scores.of[j]);
        }
    }
}

void StoreScores(Scores scores) {
    if (!HasPairs()) return;
    [[UNROLL]] for (uint j = 0; j < kEachKeys; ++j) {
        const uint key = 16 * (Across() + j * kAcross);
        if (key >= kKeys) continue;
        StoreSums(scores.of[j], 16 * Down() * kScoreStride + key / 4, kScoreStride);
    }
}

// The scores of four keys, in units of log(2), plus the shifts of the scaled values.
vec4 ScoresOf(uint first, uint four, bool keys_scaled, bool values_scaled) {
    vec4 score = floats[own_pair * kScoreStride + four] * score_factor;
    [[UNROLL]] for (uint i = 0; i < 4; ++i) {
        const uint key = 4 * four + i;
        if (keys_scaled) score[i] *= InverseOf(scales[key]);
        if (soft_cap != 0.0) score[i] = soft_cap * Tanh(score[i] / soft_cap) * kLog2E;
        const int at = int(first + key);
        if (kSlopes) score[i] = fma(own_slope, float(at - last_key), score[i]);
        if (values_scaled) score[i] += float(ShiftOf(scales[kKeys + key]));
        score[i] = at >= least_key && at <= last_key ? score[i] : kHidden;
    }
    return score;
}

// Turns scores into weights. first: the tile's first key.
void Soften(uint first, uint number, bool keys_scaled, bool values_scaled) {
    vec4 scores[kOwnFours];
    float largest = kHidden;
    [[UNROLL]] for (uint i = 0; i < kOwnFours; ++i) {
        scores[i] = vec4(kHidden);
        if (works) scores[i] = ScoresOf(first, own_lane + i * kLanes, keys_scaled, values_scaled);
        const vec2 two = max(scores[i].xy, scores[i].zw);
        largest = max(largest, max(two.x, two.y));
    }
    if (works) lanes[own_pair * kLanes + own_lane] = largest;
    subgroupBarrier();
    if (!works) return;
    [[dont_unroll]] for (uint i = 0; i < kLanes; ++i) {
        largest = max(largest, lanes[own_pair * kLanes + i]);
    }
    float factor = 1.0;
    if (largest > top + kHeadroom) {
        if (top > kLeastSeen) {  // otherwise the sums are zeros
            factor = exp2(top - largest);
            moved_tile[own_pair / 16] = number;
        }
        top = largest;
    }
    if (own_lane == 0) factors[own_pair] = factor;
    const float base = top > kLeastSeen ? top - kBias : 0.0;
    [[UNROLL]] for (uint i = 0; i < kOwnFours; ++i) {
        const uint four = own_lane + i * kLanes;
        const vec4 weight = exp2(scores[i] - base);
        halves[kWeightsAt + own_pair * kKeysStride + four] = f16vec4(weight);
        vec4 unshifted = weight;
        if (values_scaled) {
            [[UNROLL]] for (uint j = 0; j < 4; ++j) unshifted[j] *= scales[kKeys + 4 * four + j];
        }
        const float sum = (unshifted.x + unshifted.y) + (unshifted.z + unshifted.w);
        const uint part = i % kOwnParts;
        totals[part] = fma(totals[part], i < kOwnParts ? factor : 1.0, sum);
    }
}

// If a row of the subgroup's pairs has a factor, multiplies the sums by the rows' factors.
void ApplyFactors(uint number, inout Values values) {
    const bool moved = moved_tile[Down()] == number;
    const uint at = 16 * Down() * kScoreStride + 4 * Across();
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; moved && i < 64; i += kSize) {
        floats[at + i / 4 * kScoreStride + i % 4] = vec4(factors[16 * Down() + i / 4]);
    }
    subgroupBarrier();
    if (!moved) return;
    MatrixSums by_row;
    LoadSums(by_row, kEachKeys + kOfValues, at, kScoreStride);
    [[UNROLL]] for (uint i = 0; i < kOfValues; ++i) {
        ScaleSums(values.of[i], by_row);
    }
}

void AddValues(uint slice, inout Values values) {
    if (!HasPairs()) return;
    [[UNROLL]] for (uint k = 0; k < kKeys; k += 16) {
        MatrixA weights;
        LoadA(weights, kWeightsAt + 16 * Down() * kKeysStride + k / 4, kKeysStride);
        [[UNROLL]] for (uint j = 0; j < kEachValues; ++j) {
            const uint f = Across() + j * kAcross;
            if (f >= kValueSlice || slice * kValueSlice + f >= kValueFragments) continue;
            MatrixB tile;
            if (kByDims) {
                LoadColumnsB(tile, 16 * f * kKeysStride + k / 4, kKeysStride);
            } else {
                LoadRowsB(tile, k * kTileStride + 4 * f, kTileStride);
            }
            MultiplyAdd(weights, tile, values.of[FirstOf(slice) + j]);
        }
    }
}

// Sets `lanes` of a pair to the divisor of its sums, and its factor to the factor of its sums.
void FindDivisors() {
    barrier();
    [[UNROLL]] for (uint i = 0; i < kOwnParts; ++i) {
        const uint part = own_lane + i * kLanes;
        if (works) floats[own_pair * kScoreStride + part / 4][part % 4] = totals[i];
    }
    barrier();
    if (works && own_lane == 0 && IsPair(own_pair)) {
        float total = 0.0;
        [[dont_unroll]] for (uint i = 0; i < kParts; ++i) {
            total += floats[own_pair * kScoreStride + i / 4][i % 4];
        }
        float factor = 1.0;
        if (!kSlopes && uint64_t(sinks) != 0) {
            const float sink = sinks.at[HeadOf(own_pair)] * kLog2E, base = top - kBias;
            const float largest = max(base, sink);
            factor = exp2(base - largest);
            total = fma(factor, total, exp2(sink - largest));
        }
        factors[own_pair] = factor;
        lanes[own_pair * kLanes] = total;
    }
    barrier();
}

void Finish(Values values) {
    FindDivisors();
    const uint at = 16 * Down() * kScoreStride + 4 * Across();
    [[UNROLL]] for (uint slice = 0; slice < kValueSlices; ++slice) {
        [[UNROLL]] for (uint j = 0; j < kEachValues; ++j) {
            const uint f = Across() + j * kAcross, fragment = slice * kValueSlice + f;
            const bool own = f < kValueSlice && fragment < kValueFragments;
            if (own) StoreSums(values.of[FirstOf(slice) + j], at, kScoreStride);
            subgroupBarrier();
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; own && i < 256; i += kSize) {
                const uint pair = 16 * Down() + i / 16, d = 16 * fragment + i % 16;
                if (!IsPair(pair) || d >= kValueDims) continue;
                const float sum = floats[at + i / 16 * kScoreStride + i % 16 / 4][i % 4];
                const uint row = (row_begin + RowOf(pair)) * heads + HeadOf(pair);
                result.at[row * kValueDims + d] = factors[pair] * sum / lanes[pair * kLanes];
            }
            subgroupBarrier();
        }
    }
}

void main() {
    if (!Place()) return;
    Values values;
    [[UNROLL]] for (uint i = 0; i < kOfValues; ++i) ClearMatrix(values.of[i], kEachKeys + i);
    uint first = begin / kKeys * kKeys;
    FindSlots(first, 1);
    PlaceQueries();
    barrier();
    Held held;
    [[UNROLL]] for (uint f = 0; kHeld && f < kKeyFragments; ++f) {
        LoadA(held.of[f], kQueriesAt + 16 * Down() * kQueryStride + 4 * f, kQueryStride);
    }
    if (kQueriesFirst) barrier();
    // Each slice is loaded while the one before it is multiplied.
    Brought next;
    Fetch(KeysOf(1), 0, next);
    for (uint number = 1;; ++number, first += kKeys) {
        const bool last = first + kKeys >= end;
        Slices keys = KeysOf(number % 2), rows = ValuesOf(number % 2);
        Scores scores;
        [[UNROLL]] for (uint j = 0; j < kEachKeys; ++j) ClearMatrix(scores.of[j], j);
        [[dont_unroll]] for (uint slice = 0; slice < kKeySlices; ++slice) {
            if (slice > 0) barrier();
            const bool large = PlaceSlice(keys, next);
            if (kChecksKeys && slice == 0) NoteLarge(keys, large, number);
            if (!last && slice == 0) FindSlots(first + kKeys, (number + 1) % 2);
            barrier();
            if (kChecksKeys && slice == 0) ScaleLarge(keys, number);
            if (kKeySlices > 1 && slice + 1 < kKeySlices) {
                Fetch(keys, slice + 1, next);
            } else {
                Fetch(rows, 0, next);
            }
            AddScores(slice, held, scores);
        }
        StoreScores(scores);
        [[UNROLL]] for (uint slice = 0; slice < kValueSlices; ++slice) {
            barrier();
            const bool large = PlaceSlice(rows, next);
            if (slice == 0) {
                if (kChecksValues) {
                    NoteLarge(rows, large, number);
                    barrier();
                    ScaleLarge(rows, number);
                }
                Soften(first, number, keys.scaled, rows.scaled);
            }
            barrier();
            if (slice == 0) ApplyFactors(number, values);
            if (kValueSlices > 1 && slice + 1 < kValueSlices) {
                Fetch(rows, slice + 1, next);
            } else if (!last) {
                Fetch(KeysOf((number + 1) % 2), 0, next);
            }
            AddValues(slice, values);
        }
        if (last) break;
        barrier();
    }
    Finish(values);
}
