// Shared by causal.comp, causal_grad_q.comp and causal_grad_kv.comp: arguments, and products of
// tiles.
//
// A workgroup of 128 owns kRows rows of one sequence (queries; in causal_grad_kv.comp keys) and
// iterates over tiles of kOthers rows of the same sequence. Both kinds of tiles begin at multiples
// of their size from the sequence's first row, so that the order of a row's sums depends only on
// its position in its sequence. Sums are chains of fma in float32.
//
// An invocation has four rows (4 down + r). In a product with others it has columns 4 (across + c
// kAcross) + i; in sums [rows, dims] it has the quads across + j kAcross of the dims.
//
// A version for matrix units only has to replace Multiply, SetWeights and AddWeighted.
#include "element.glsl"
#include "sequences.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kType = 0;   // of all matrices
layout(constant_id = 2) const uint kDims = 64;  // of a head: a multiple of 8, at most 256
layout(constant_id = 3) const uint kRows = 64;  // or 32
layout(constant_id = 4) const uint kSlice = 32;  // others with dims in shared memory at the
                                                 // same time
layout(constant_id = 5) const bool kCapped = false;
layout(constant_id = 6) const bool kSloped = false;    // ALiBi
layout(constant_id = 7) const bool kInChunks = false;  // a row sees its chunk of `window` rows

layout(push_constant, scalar) uniform Args {
    uint64_t q, k, v, out_rows, dout;
    Floats lse, sums;        // [heads, rows]; sums of dout * out. causal.comp: sums is sinks
                             // [heads] or 0
    uint64_t first, second;  // results: out; or dq; or dk and dv
    Sequences sequences;
    Blocks blocks;
    Floats slopes;      // kSloped: [heads]
    uint heads_and_kv;  // heads, KV heads << 16
    uint first_heads;   // first head, first KV head << 16
    uint group, rows, block_count, window;
    float scale, soft_cap;
} a;

uint Heads() { return a.heads_and_kv & 0xffffu; }
uint KvHeads() { return a.heads_and_kv >> 16; }

const uint kThreads = 128, kOthers = 64, kDeep = 16;
const uint kDown = kRows / 4, kAcross = kThreads / kDown;
const uint kFours = kOthers / 4 / kAcross;  // groups of four others per invocation
const uint kQuads = kDims / 4, kQuadsEach = (kQuads + kAcross - 1) / kAcross;
const uint kRowPitch = kRows / 4 + 1, kOtherPitch = kOthers / 4 + 1;
const uint kDeepQuads = kDeep * (kRowPitch + kOtherPitch), kSliceQuads = kSlice * kQuads;

// Holds dims of rows and of others, with one term per line of groups of four; or others, with their
// dims in quads.
shared vec4 staged[kDeepQuads > kSliceQuads ? kDeepQuads : kSliceQuads];
shared vec4 weights[kOthers * kRowPitch];
shared float lanes[kRows * kAcross];

uint Down() { return gl_LocalInvocationIndex / kAcross; }
uint Across() { return gl_LocalInvocationIndex % kAcross; }
uint OtherOf(uint c) { return 4 * (Across() + c * kAcross); }  // first of four others

// This workgroup's sequence, and its own rows of it.
uint sequence_begin, sequence_rows, own_begin, own_rows;

// Sets the workgroup's rows and returns whether it has any. Only blocks of the step's table that
// begin a tile have rows. The last blocks come first, because their rows see the most keys.
bool Place() {
    const BlockEntry block = a.blocks.at[a.block_count - 1 - gl_WorkGroupID.z];
    const SequenceEntry sequence = a.sequences.at[block.sequence];
    sequence_begin = uint(sequence.row_begin);
    sequence_rows = uint(sequence.row_count);
    own_begin = uint(block.row_begin) - sequence_begin;
    own_rows = min(kRows, sequence_rows - own_begin);
    return own_begin % kRows == 0;
}
uint FirstKey(uint query) {
    if (kInChunks) return query / a.window * a.window;
    return a.window == 0 || query < a.window ? 0 : query - a.window + 1;
}
// The end of the queries that see one of the workgroup's own rows.
uint EndOfQueries() {
    const uint last = own_begin + own_rows - 1;
    if (kInChunks) return min(sequence_rows, (last / a.window + 1) * a.window);
    return a.window == 0 ? sequence_rows : min(sequence_rows, last + a.window);
}
bool Sees(uint query, uint key) { return key <= query && key >= FirstKey(query); }
uint KvHead(uint head) {
    return ((a.first_heads & 0xffffu) + head) / a.group - (a.first_heads >> 16);
}
float SlopeOf(uint head) { return kSloped ? a.slopes.at[head] : 0.0; }

// Rows of a head, starting at a row of the sequence.
struct Tile {
    uint64_t at;
    uint stride, rows;  // stride: in elements; rows beyond `rows` are zeros
};
Tile TileOf(uint64_t matrix, uint head, uint heads, uint row, uint rows) {
    const uint stride = heads * kDims;
    const uint64_t first = uint64_t(sequence_begin + row) * stride + head * kDims;
    return Tile(matrix + first * (kType == kF32 ? 4 : 2), stride, rows);
}
vec4 QuadOf(Tile tile, uint row, uint quad) {
    if (row >= tile.rows || quad >= kQuads) return vec4(0);
    return LoadQuad(tile.at, kType, uint64_t(row) * tile.stride + 4 * quad, 4, true);
}

// Copies dims [4 quad, 4 quad + kDeep) of `count` rows to `staged`, from `begin` on.
void Stage(Tile tile, uint count, uint quad, uint begin, uint pitch) {
    [[dont_unroll]] for (uint job = gl_LocalInvocationIndex; job < count * kDeep / 4;
                         job += kThreads) {
        const uint row = job / (kDeep / 4), own = job % (kDeep / 4);
        const vec4 value = QuadOf(tile, row, quad + own);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            staged[begin + (4 * own + i) * pitch + row / 4][row % 4] = value[i];
        }
    }
}

struct Products { vec4 of[4 * kFours]; };  // [c][r], a vec4 of four others

// Returns rows . others^T, summed over the dims.
void Multiply(Tile rows, Tile others, out Products products) {
    [[unroll]] for (uint i = 0; i < 4 * kFours; ++i) products.of[i] = vec4(0);
    const uint begin = kDeep * kRowPitch;
    [[dont_unroll]] for (uint deep = 0; deep < kDims; deep += kDeep) {
        barrier();
        Stage(rows, kRows, deep / 4, 0, kRowPitch);
        Stage(others, kOthers, deep / 4, begin, kOtherPitch);
        barrier();
        [[dont_unroll]] for (uint d = 0; d < kDeep; ++d) {
            const vec4 x = staged[d * kRowPitch + Down()];
            [[unroll]] for (uint c = 0; c < kFours; ++c) {
                const vec4 y = staged[begin + d * kOtherPitch + Across() + c * kAcross];
                [[unroll]] for (uint r = 0; r < 4; ++r) {
                    products.of[4 * c + r] = fma(vec4(x[r]), y, products.of[4 * c + r]);
                }
            }
        }
    }
}

void SetWeights(Products products) {
    barrier();
    [[unroll]] for (uint c = 0; c < kFours; ++c) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            weights[(OtherOf(c) + i) * kRowPitch + Down()] =
                vec4(products.of[4 * c][i], products.of[4 * c + 1][i], products.of[4 * c + 2][i],
                     products.of[4 * c + 3][i]);
        }
    }
}

struct Sums { vec4 of[4 * kQuadsEach]; };  // [j][r], a vec4 of four dims
void Clear(out Sums sums) {
    [[unroll]] for (uint i = 0; i < 4 * kQuadsEach; ++i) sums.of[i] = vec4(0);
}

// sums += weights . others
void AddWeighted(Tile others, inout Sums sums) {
    [[dont_unroll]] for (uint first = 0; first < others.rows; first += kSlice) {
        barrier();
        [[dont_unroll]] for (uint job = gl_LocalInvocationIndex; job < kSliceQuads;
                             job += kThreads) {
            staged[job] = QuadOf(others, first + job / kQuads, job % kQuads);
        }
        barrier();
        [[dont_unroll]] for (uint n = 0; n < kSlice; ++n) {
            const vec4 w = weights[(first + n) * kRowPitch + Down()];
            [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) {
                const uint quad = min(Across() + j * kAcross, kQuads - 1);
                const vec4 y = staged[n * kQuads + quad];
                [[unroll]] for (uint r = 0; r < 4; ++r) {
                    sums.of[4 * j + r] = fma(vec4(w[r]), y, sums.of[4 * j + r]);
                }
            }
        }
    }
}

void Store(Tile to, Sums sums) {
    [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) {
        const uint quad = Across() + j * kAcross;
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            const uint row = 4 * Down() + r;
            if (row >= to.rows || quad >= kQuads) continue;
            StoreQuad(to.at, kType, uint64_t(row) * to.stride + 4 * quad, 4, true,
                      sums.of[4 * j + r]);
        }
    }
}

// Each row's maximum (or sum) of `each` over the invocations of the row, in order.
vec4 LargestOfLanes(vec4 each) {
    barrier();
    [[unroll]] for (uint r = 0; r < 4; ++r) lanes[(4 * Down() + r) * kAcross + Across()] = each[r];
    barrier();
    [[dont_unroll]] for (uint i = 0; i < kAcross; ++i) {
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            each[r] = max(each[r], lanes[(4 * Down() + r) * kAcross + i]);
        }
    }
    return each;
}
vec4 SumOfLanes(vec4 each) {
    barrier();
    [[unroll]] for (uint r = 0; r < 4; ++r) lanes[(4 * Down() + r) * kAcross + Across()] = each[r];
    barrier();
    vec4 sum = vec4(0);
    [[dont_unroll]] for (uint i = 0; i < kAcross; ++i) {
        [[unroll]] for (uint r = 0; r < 4; ++r) sum[r] += lanes[(4 * Down() + r) * kAcross + i];
    }
    return sum;
}

// A head's part of a score for the distance of a key from its query (ALiBi).
float BiasOf(float head_slope, uint query, uint key) {
    return kSloped ? head_slope * (float(key) - float(query)) : 0.0;
}

// The score for q . k; slope: its derivative by scale * q . k. bias: added to scale * q . k.
float ScoreOf(float product, float bias, out float slope) {
    float score = product * a.scale;
    if (kSloped) score += bias;
    slope = 1.0;
    if (!kCapped) return score;
    const float t = Tanh(score / a.soft_cap);
    slope = fma(-t, t, 1.0);
    return a.soft_cap * t;
}

// Replaces score (q . k) by p, and dp (dout . v) by scale * ds, the gradient of q . k.
void Differentiate(inout float score, inout float dp, float bias, bool seen, float lse, float sum) {
    float slope;
    const float p = seen ? exp(ScoreOf(score, bias, slope) - lse) : 0.0;
    dp = seen ? p * (dp - sum) * slope * a.scale : 0.0;
    score = p;
}
