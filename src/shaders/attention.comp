// Attention of a tile of queries that read one KV head over keys [begin, end), with an online
// softmax (Milakov and Gimelshein 2018; Dao et al. 2022). The tile's queries are pairs (row, head)
// of a block of rows of one sequence. Tiles of keys begin at multiples of kKeys, so that a row's
// result does not depend on the other rows of its block: a tile that is hidden from a row changes
// none of its bits.
//
// kSplit: a block is one row, and a workgroup processes one chunk of its keys (positions [c n, c n
// + n), where n is ChunkOf(the row's position)). It writes the sum of values, the largest score and
// the sum of weights for attention_merge.comp; with a single chunk, it writes the result.
//
// kList: a row attends to the positions that `sinks` lists (latent attention), or to the blocks of
// positions that it lists for the KV head, and keys are counted along the list. If the list has
// space for all keys, it holds all of them in order, and the bits equal those without a list.
// Blocks of several rows have no list: they skip rows at positions beyond the capacity. `partial` then
// is the sinks of the heads, or 0, if there is a single chunk.
//
// kStride: with kSplit, a row attends to the last `window` positions in k_cache, and then to windows
// of kStride positions in v_cache: all, or kTop of them, which q_more lists. A row of a cache is key
// and value.
//
// kAhead: a row also sees later rows of its sequence in this step (encoders). With kSplit, its
// chunks go up to the last key that it sees.
//
// Workgroup (tile of pairs * chunks + chunk, KV head, block or row).
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 1) const uint kKeyType = 1;  // of the caches
layout(constant_id = 2) const uint kKeyDims = 64;
layout(constant_id = 3) const uint kValueDims = 64;
layout(constant_id = 4) const uint kFirstDims = 64;  // dims of a query that come from q; the others
                                                     // from q_more
layout(constant_id = 5) const uint kPairs = 16;
layout(constant_id = 6) const uint kKeys = 32;   // per tile; a multiple of 4, at most kThreads
layout(constant_id = 7) const uint kSlice = 64;  // dims kept in shared memory; a multiple of 4
layout(constant_id = 8) const bool kSplit = false;
// Two sizes that define the order of sums: the number of invocations that share a pair's softmax,
// and the number of groups of keys whose values are summed separately.
layout(constant_id = 9) const uint kLanes = 8;
layout(constant_id = 10) const uint kKeyGroups = 1;
layout(constant_id = 11) const bool kList = false;
layout(constant_id = 12) const uint kValueType = 1;
layout(constant_id = 13) const bool kSlopes = false;  // `sinks` has the heads' slopes (ALiBi)
layout(constant_id = 14) const uint kStride = 0;  // 0: no windows
layout(constant_id = 15) const uint kTop = 0;     // 0: all windows
layout(constant_id = 16) const bool kAhead = false;

layout(push_constant, scalar) uniform Args {
    Floats q, q_more;
    uint64_t k_cache, v_cache;
    Floats result, partial, sinks;  // sinks: 0 if there are none; kList: Ints, per row
    uint64_t rows_or_blocks;        // kSplit: Ints, the sequence of each row; else Blocks
    Sequences sequences;
    Ints pages;
    uint heads, first_head, group, first_kv_head, kv_heads;
    uint page_tokens, window, chunks;
    float scale, soft_cap;
    // With kSplit: the row of workgroup z = 0, whose chunks come first in `partial`. With kList,
    // the highest bit means: skip rows for which the list has space for all keys.
    uint row_and_bit;
    uint block;  // of a list (cache.glsl)
};

const uint kFewBit = 0x80000000u;
const uint kNoSlot = 0xffffffffu;
const uint kOfWindow = 0x80000000u;  // bit of a slot: a row of v_cache
const float kHidden = -3.0e38;  // score of a hidden key

// Row length of the values; in latent attention values are the first columns of the keys.
const uint kValueRow = kFirstDims == kKeyDims ? kValueDims : kKeyDims;
const uint kFours = kSlice / 4;
const uint kKeySlices = (kKeyDims + kSlice - 1) / kSlice;
const uint kValueSlices = (kValueDims + kSlice - 1) / kSlice;
const uint kPitch = kFours + 1;  // of a key in `tile`
const uint kLoads = (kKeys * kFours + kThreads - 1) / kThreads;
const uint kQueryPitch = kKeySlices * kFours;
shared vec4 queries[kPairs * kQueryPitch];
// Keys or values. Caches of 16 bits stay unchanged, which takes half of the space.
const bool kNarrowKeys = kKeyType == kF16 || kKeyType == kBF16;
const bool kNarrowValues = kValueType == kF16 || kValueType == kBF16;
const bool kFoursFit = (kKeyDims | kValueRow) % 4 == 0;
const bool kNarrow = kNarrowKeys && kNarrowValues && kFoursFit;
shared vec4 tile[kNarrow ? kThreads / 4 : kKeys * kPitch];
shared uvec2 narrow_tile[kNarrow ? kKeys * kPitch : 1];
shared vec4 weights[kPairs * kKeys / 4];
shared uint slots[kKeys];
shared float shrinks[kPairs];

// Scores: each invocation computes one key and every kScoreGroups-th pair.
const uint kScoreGroups = kThreads / kKeys;
const uint kScorePairs = (kPairs + kScoreGroups - 1) / kScoreGroups;
// Softmax: kLanes invocations per pair.
shared float lanes[kPairs * kLanes];
// Values: each invocation computes one dim of a slice, for every kValueGroups-th pair. With key
// groups it does so for one pair and every kKeyGroups-th group of four keys.
const uint kValueGroups = kThreads / kSlice;
const uint kValuePairs = (kPairs + kValueGroups - 1) / kValueGroups;

// The block, and the part of it that this workgroup processes.
uint row_begin, row_count, head_begin, head_count, first_position, first_page, first_pair;
uint begin, end;  // of keys
uint sequence_end;  // the position after the sequence's last row
uint first_row, own_row, own_position;
float sums[kValueSlices * kValuePairs];
float most = kHidden, total = 0.0;  // maximum and total of the invocation's pair and lane

uint RowOf(uint pair) { return (first_pair + pair) / head_count; }
uint HeadOf(uint pair) { return head_begin + (first_pair + pair) % head_count; }
bool IsPair(uint pair) { return RowOf(pair) < row_count; }
uint FirstKey(uint position) { return kStride != 0 ? 0 : FirstKeyOf(window, position); }
uint LastKey(uint position) {
    return kAhead ? LastKeyAhead(window, position, sequence_end) : position;
}

bool Place() {
    const uint unit = gl_WorkGroupID.z;
    first_row = row_and_bit & ~kFewBit;
    uint sequence_index;
    if (kSplit) {
        row_begin = first_row + unit;
        sequence_index = uint(Ints(rows_or_blocks).at[row_begin]);
        row_count = 1;
    } else {
        const BlockEntry block = Blocks(rows_or_blocks).at[unit];
        sequence_index = uint(block.sequence);
        row_begin = uint(block.row_begin);
        row_count = uint(block.row_count);
    }
    const SequenceEntry sequence = sequences.at[sequence_index];
    first_position = uint(sequence.position) + row_begin - uint(sequence.row_begin);
    sequence_end = uint(sequence.position + sequence.row_count);
    first_page = uint(sequence.first_page);
    if (kList) {
        const bool few = first_position < (window & kMostListed);
        if (kSplit ? few && row_and_bit >= kFewBit : !few) return false;
        own_row = row_begin;
        if (kSplit) first_position = LastPlace(window, block, first_position);
    }
    if (kStride != 0) {
        own_row = row_begin;
        own_position = first_position;
        first_position = WindowKeys(own_position, window, kStride, kTop) - 1;
    }
    const uint model_begin = (first_kv_head + gl_WorkGroupID.y) * group;  // heads of the model
    const uint low = max(model_begin, first_head);
    const uint high = min(model_begin + group, first_head + heads);
    if (high <= low) return false;
    head_begin = low - first_head;
    head_count = high - low;
    first_pair = gl_WorkGroupID.x / chunks * kPairs;
    begin = FirstKey(first_position);
    end = LastKey(first_position + row_count - 1) + 1;
    if (kSplit) {
        const uint chunk = ChunkOf(end - 1);
        const uint first = (begin / chunk + gl_WorkGroupID.x % chunks) * chunk;
        begin = max(begin, first);
        end = min(end, first + chunk);
    }
    return begin < end && IsPair(0);
}

void LoadQueries() {
    const uint all = kPairs * kQueryPitch * 4;
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < all; i += kThreads) {
        const uint pair = i / (kQueryPitch * 4), d = i % (kQueryPitch * 4);
        float value = 0.0;
        if (d < kKeyDims && IsPair(pair)) {
            const uint at = (row_begin + RowOf(pair)) * heads + HeadOf(pair);
            value = d < kFirstDims ? q.at[at * kFirstDims + d]
                                   : q_more.at[at * (kKeyDims - kFirstDims) + d - kFirstDims];
        }
        queries[i / 4][i % 4] = value;
    }
}

// The row of a window in the cache of windows.
uint SlotOfWindow(uint number) {
    uint own = number;
    if (kTop != 0) own = uint(Ints(uint64_t(q_more)).at[own_row * kTop + number]);
    const uint row = WindowRow(own, kStride), rows = page_tokens / RowPositions(kStride);
    return kOfWindow | (uint(pages.at[first_page + row / rows]) * rows + row % rows);
}
uint64_t AddressOf(uint64_t cache, uint slot, uint bytes) {
    if (kStride == 0) return cache + uint64_t(slot) * bytes;
    return ((slot & kOfWindow) != 0 ? v_cache : k_cache) + uint64_t(slot & ~kOfWindow) * bytes;
}

// Finds the rows of keys [first, first + kKeys) in the cache.
void FindSlots(uint first) {
    const uint i = gl_LocalInvocationIndex;
    if (i >= kKeys) return;
    uint key = first + i;
    uint slot = kNoSlot;
    if (key >= begin && key < end) {
        if (kList && kSplit) {
            const uint each = EntryPositions(block), entries = (window & kMostListed) / each;
            const uint at = (own_row * kv_heads + gl_WorkGroupID.y) * entries + key / each;
            key = uint(Ints(uint64_t(sinks)).at[at]) * each + key % each;
        }
        const uint single = kStride != 0 ? min(window, own_position + 1) : 0;
        if (kStride != 0 && key >= single) {
            slots[i] = SlotOfWindow(key - single);
            return;
        }
        if (kStride != 0) key += own_position + 1 - single;
        const uint page = uint(pages.at[first_page + key / page_tokens]);
        slot = (page * kv_heads + gl_WorkGroupID.y) * page_tokens + key % page_tokens;
    }
    slots[i] = slot;
}

// All loads come before the first store, so that they overlap. A key outside this workgroup's range
// reads the first row of the cache instead of a branch.
void LoadNarrow(uint64_t cache, uint row_dims, uint slice, uint dims) {
    uvec2 words[kLoads];
    [[unroll]] for (uint n = 0; n < kLoads; ++n) {
        const uint i = gl_LocalInvocationIndex + n * kThreads;
        const uint slot = slots[min(i / kFours, kKeys - 1)], four = slice * kFours + i % kFours;
        const bool some = slot != kNoSlot && four * 4 < dims;
        Words2 row = Words2(some ? AddressOf(cache, slot, row_dims * 2) : cache);
        words[n] = some ? row.at[some ? four : 0] : uvec2(0);
    }
    [[unroll]] for (uint n = 0; n < kLoads; ++n) {
        const uint i = gl_LocalInvocationIndex + n * kThreads;
        if (i < kKeys * kFours) narrow_tile[i / kFours * kPitch + i % kFours] = words[n];
    }
}

// Loads a slice of the rows of a tile; zeros for keys outside this workgroup's range.
void LoadTile(uint64_t cache, uint type, uint row_dims, uint slice, uint dims) {
    if (kNarrow) {
        LoadNarrow(cache, row_dims, slice, dims);
        return;
    }
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < kKeys * kFours; i += kThreads) {
        const uint key = i / kFours, four = i % kFours;
        vec4 values = vec4(0);
        if (slots[key] != kNoSlot) {
            const uint64_t row = AddressOf(cache, slots[key], RowBytes(type, row_dims));
            values = LoadFour(row, type, slice * kSlice + four * 4, dims);
        }
        tile[key * kPitch + four] = values;
    }
}

// Four elements of a key or value in the tile, and one of them.
vec4 TileFour(uint type, uint at) {
    if (!kNarrow) return tile[at];
    return FromHalves(type, narrow_tile[at].x, narrow_tile[at].y);
}
float TileOne(uint type, uint at, uint part) {
    if (!kNarrow) return tile[at][part];
    return FromHalves(type, narrow_tile[at][part / 2] >> part % 2 * 16, 0).x;
}

void Score(uint first) {
    float scores[kScorePairs];
    [[unroll]] for (uint i = 0; i < kScorePairs; ++i) scores[i] = 0.0;
    const uint key = gl_LocalInvocationIndex % kKeys, offset = gl_LocalInvocationIndex / kKeys;
    [[dont_unroll]] for (uint slice = 0; slice < kKeySlices; ++slice) {
        barrier();
        LoadTile(k_cache, kKeyType, kKeyDims, slice, kKeyDims);
        barrier();
        [[dont_unroll]] for (uint four = 0; four < kFours; ++four) {
            const vec4 k = TileFour(kKeyType, key * kPitch + four);
            [[unroll]] for (uint i = 0; i < kScorePairs; ++i) {
                const uint pair = min(offset + i * kScoreGroups, kPairs - 1);
                const vec4 x = queries[pair * kQueryPitch + slice * kFours + four];
                scores[i] = fma(k.w, x.w, fma(k.z, x.z, fma(k.y, x.y, fma(k.x, x.x, scores[i]))));
            }
        }
    }
    [[unroll]] for (uint i = 0; i < kScorePairs; ++i) {
        const uint pair = offset + i * kScoreGroups;
        if (pair >= kPairs) break;
        const uint position = first_position + RowOf(pair), at = first + key;
        const bool seen =
            at < end && at <= LastKey(position) && at >= max(begin, FirstKey(position));
        float score = scores[i] * scale;
        if (kSlopes && IsPair(pair)) {
            score = fma(sinks.at[HeadOf(pair)], float(int(at) - int(position)), score);
        }
        if (soft_cap != 0.0) score = soft_cap * Tanh(score / soft_cap);
        const uint index = pair * kKeys + key;
        weights[index / 4][index % 4] = seen && IsPair(pair) ? score : kHidden;
    }
}

// Turns scores into weights.
void Soften() {
    const uint pair = gl_LocalInvocationIndex / kLanes, lane = gl_LocalInvocationIndex % kLanes;
    const bool works = pair < kPairs;
    barrier();
    if (works) {
        float largest = kHidden;
        [[dont_unroll]] for (uint i = lane; i < kKeys; i += kLanes) {
            const uint index = pair * kKeys + i;
            largest = max(largest, weights[index / 4][index % 4]);
        }
        lanes[gl_LocalInvocationIndex] = largest;
    }
    barrier();
    if (works) {
        float largest = most;
        [[dont_unroll]] for (uint i = 0; i < kLanes; ++i)
            largest = max(largest, lanes[pair * kLanes + i]);
        const float shrink = exp(most - largest);
        float sum = 0.0;
        [[dont_unroll]] for (uint i = lane; i < kKeys; i += kLanes) {
            const uint index = pair * kKeys + i;
            const float score = weights[index / 4][index % 4];
            const float weight = score <= -2.9e38 ? 0.0 : exp(score - largest);
            weights[index / 4][index % 4] = weight;
            sum += weight;
        }
        total = fma(total, shrink, sum);
        most = largest;
        if (lane == 0) shrinks[pair] = shrink;
    }
}

// The pair of this invocation's sum i.
uint ValuePair(uint i) {
    const uint offset = gl_LocalInvocationIndex / kSlice;
    return kKeyGroups > 1 ? offset % kPairs : offset + i * kValueGroups;
}
uint KeyGroup() {
    return kKeyGroups > 1 ? gl_LocalInvocationIndex / kSlice / kPairs : 0;
}
bool SumsValues() {
    return gl_LocalInvocationIndex < kValueGroups * kSlice && KeyGroup() < kKeyGroups;
}

void AddSlice(uint slice) {
    const uint dim = gl_LocalInvocationIndex % kSlice;
    [[unroll]] for (uint i = 0; i < kValuePairs; ++i) {
        sums[slice * kValuePairs + i] *= shrinks[min(ValuePair(i), kPairs - 1)];
    }
    [[dont_unroll]] for (uint four = KeyGroup(); four < kKeys / 4; four += kKeyGroups) {
        const uint at = four * 4 * kPitch + dim / 4, part = dim % 4;
        const vec4 v = vec4(TileOne(kValueType, at, part), TileOne(kValueType, at + kPitch, part),
                            TileOne(kValueType, at + 2 * kPitch, part),
                            TileOne(kValueType, at + 3 * kPitch, part));
        [[unroll]] for (uint i = 0; i < kValuePairs; ++i) {
            const vec4 w = weights[min(ValuePair(i), kPairs - 1) * (kKeys / 4) + four];
            float sum = sums[slice * kValuePairs + i];
            sum = fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
            sums[slice * kValuePairs + i] = sum;
        }
    }
}

void AddValues() {
    [[unroll]] for (uint slice = 0; slice < kValueSlices; ++slice) {
        barrier();
        LoadTile(v_cache, kValueType, kValueRow, slice, kValueDims);
        barrier();
        if (SumsValues()) AddSlice(slice);
    }
}

// Adds the sums of all key groups to the sums of group 0.
void JoinKeyGroups() {
    if (kKeyGroups == 1) return;
    [[unroll]] for (uint slice = 0; slice < kValueSlices; ++slice) {
        barrier();
        const uint at = gl_LocalInvocationIndex;
        if (SumsValues()) tile[at / 4][at % 4] = sums[slice * kValuePairs];
        barrier();
        if (SumsValues() && KeyGroup() == 0) {
            float sum = sums[slice * kValuePairs];
            for (uint other = 1; other < kKeyGroups; ++other) {
                const uint from = at + other * kPairs * kSlice;
                sum += tile[from / 4][from % 4];
            }
            sums[slice * kValuePairs] = sum;
        }
    }
}

// Writes a pair's result, or the partial result for attention_merge.comp.
void Finish() {
    barrier();
    const uint lane = gl_LocalInvocationIndex % kLanes;
    const uint own = gl_LocalInvocationIndex / kLanes;
    if (own < kPairs) {
        lanes[gl_LocalInvocationIndex] = total;
        if (lane == 0) shrinks[own] = most;
    }
    barrier();
    if (!SumsValues() || KeyGroup() != 0) return;
    [[unroll]] for (uint i = 0; i < kValuePairs; ++i) {
        const uint pair = ValuePair(i);
        if (pair >= kPairs || !IsPair(pair)) continue;
        float all = 0.0;
        [[dont_unroll]] for (uint j = 0; j < kLanes; ++j) all += lanes[pair * kLanes + j];
        const uint at = (row_begin + RowOf(pair)) * heads + HeadOf(pair);
        const bool parted = kSplit && chunks > 1;
        const uint64_t chunk =
            uint64_t(at - first_row * heads) * chunks + gl_WorkGroupID.x % chunks;
        Floats part = Floats(uint64_t(partial) + chunk * ((kValueDims + 2) * 4));
        float weight = 1.0, divisor = all;
        Floats scores = kList ? partial : sinks;
        if (!parted && !kSlopes && uint64_t(scores) != 0) {
            const float sink = scores.at[HeadOf(pair)];
            const float largest = max(shrinks[pair], sink);
            weight = exp(shrinks[pair] - largest);
            divisor = fma(weight, all, exp(sink - largest));
        }
        [[unroll]] for (uint slice = 0; slice < kValueSlices; ++slice) {
            const uint d = slice * kSlice + gl_LocalInvocationIndex % kSlice;
            if (d >= kValueDims) continue;
            const float sum = sums[slice * kValuePairs + i];
            if (parted) {
                part.at[d] = sum;
                if (d == 0) part.at[kValueDims] = shrinks[pair];
                if (d == 0) part.at[kValueDims + 1] = all;
            } else {
                result.at[at * kValueDims + d] = weight * sum / divisor;
            }
        }
    }
}

void main() {
    if (!Place()) return;
    [[unroll]] for (uint i = 0; i < kValueSlices * kValuePairs; ++i) sums[i] = 0.0;
    LoadQueries();
    for (uint first = begin / kKeys * kKeys; first < end; first += kKeys) {
        barrier();
        FindSlots(first);
        Score(first);
        Soften();
        AddValues();
    }
    JoinKeyGroups();
    Finish();
}
